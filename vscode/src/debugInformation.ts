/** What a report of a mistake should say: versions, the interpreter and why it, the settings. */

import * as vscode from "vscode";
import type { Client } from "./client";
import type { Clients } from "./clients";
import { candidates } from "./interpreter";

const ADDRESS = vscode.Uri.parse("tessera-debug:/Tessera debug information.md");

/** Gives the function that shows it: a read-only document, made anew each time. */
export function debugInformation(context: vscode.ExtensionContext, clients: Clients): () => Promise<void> {
  const changed = new vscode.EventEmitter<vscode.Uri>();
  const provideTextDocumentContent = () => describe(context, clients);
  const provider = { onDidChange: changed.event, provideTextDocumentContent };
  context.subscriptions.push(changed, vscode.workspace.registerTextDocumentContentProvider(ADDRESS.scheme, provider));
  return async () => {
    changed.fire(ADDRESS);
    await vscode.window.showTextDocument(ADDRESS);
  };
}

async function describe(context: vscode.ExtensionContext, clients: Clients): Promise<string> {
  return [
    "# Tessera: debug information",
    `- Extension ${context.extension.packageJSON.version}`,
    `- ${vscode.env.appName} ${vscode.version}, ${vscode.env.remoteName ?? "local"}, ${process.platform} ${process.arch}`,
    `- Workspace is ${vscode.workspace.isTrusted ? "trusted" : "not trusted"}`,
    ...(clients.all.length
      ? (await Promise.all(clients.all.map(describeServer))).flat()
      : ["- No server was needed yet"]),
  ].join("\n");
}

async function describeServer(client: Client): Promise<string[]> {
  await client.settled();
  const { server, problem, folder } = client;
  const of = folder ? ` of ${folder.name}` : "";
  const considered: string[] = [];
  for await (const { path, source } of candidates(folder?.uri)) {
    considered.push(`- ${source}: \`${path}\``);
  }
  const settings = vscode.workspace.getConfiguration("tessera", folder);
  return [
    `\n## Server${of}`,
    problem ? `- Problem: ${problem}` : `- ${client.isRunning ? "Running" : "Not running"}`,
    ...(server
      ? [
          `- Command: \`${[server.executable.command, ...(server.executable.args ?? [])].join(" ")}\``,
          `- ${server.bundled ? `Bundled, since ${server.bundled}` : "The interpreter's own"}`,
          `- Interpreter from ${server.interpreter.source}, Python ${server.facts.version.join(".")}, Tessera ${server.facts.tessera ?? "not installed"}`,
        ]
      : []),
    `\n## Interpreters considered`,
    ...considered,
    `\n## Settings`,
    `\`\`\`json\n${JSON.stringify(settings, null, 2)}\n\`\`\``,
  ];
}
