/** The server to run: that of the project's interpreter, so that it knows the project's version of Tessera; else the one
 * that this extension brings, on any Python that is new enough. */

import type * as vscode from "vscode";
import { workspace } from "vscode";
import type { Executable } from "vscode-languageclient/node";
import { unpack } from "./bundled";
import { examine, type Facts, find, type Interpreter, isOlder, OLDEST } from "./interpreter";

export interface Server {
  executable: Executable;
  interpreter: Interpreter;
  facts: Facts;
  /** why the bundled server runs, where it does */
  bundled: string | undefined;
}

/** Raises an Error for the person to read where nothing can run. */
export async function choose(context: vscode.ExtensionContext, folder: vscode.Uri | undefined): Promise<Server> {
  const interpreter = await find(folder);
  if (!interpreter) {
    throw new Error(`No Python was found. Install Python ${OLDEST.join(".")} or newer, or set tessera.interpreter.`);
  }
  const facts = await examine(interpreter.path, context.extensionPath).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === "ENOENT" ? "does not exist" : `does not run: ${error.message}`;
    throw new Error(`${interpreter.path}, from ${interpreter.source}, ${why}.`);
  });
  if (isOlder(facts.version, OLDEST)) {
    const [is, needed] = [facts.version.join("."), OLDEST.join(".")];
    throw new Error(`${interpreter.path}, from ${interpreter.source}, is Python ${is}; Tessera needs ${needed}.`);
  }
  const bundled = reasonForBundled(facts);
  // -I and -S leave out what else is installed, and -P the folder that the editor was started in.
  const args = bundled ? ["-I", "-S", await unpack(context)] : ["-P", "-m", "tessera_lsp"];
  args.push("--log-level", workspace.getConfiguration("tessera", folder).get("logLevel", "WARNING"));
  const options = { cwd: folder && !bundled ? folder.fsPath : context.extensionPath };
  return { executable: { command: interpreter.path, args, options }, interpreter, facts, bundled };
}

function reasonForBundled(facts: Facts): string | undefined {
  if (!workspace.isTrusted) {
    return "this workspace is not trusted";
  }
  if (!facts.server) {
    return facts.tessera ? "the interpreter lacks tessera's extra [lsp]" : "the interpreter has no Tessera";
  }
  return undefined;
}
