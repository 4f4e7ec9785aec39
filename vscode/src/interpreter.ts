/** Which Python a project uses, and what of Tessera it has. */

import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, realpath } from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import { type Environment, PythonExtension } from "@vscode/python-extension";
import * as vscode from "vscode";

export interface Interpreter {
  path: string;
  /** who named it, as words after "from" */
  source: string;
}

/** What a Python says of itself. `server`: it can run tessera_lsp. */
export interface Facts {
  version: [number, number];
  tessera: string | null;
  server: boolean;
}

export const OLDEST: [number, number] = [3, 11];
const ENVIRONMENTS = "ms-python.vscode-python-envs";
const TIMEOUT = 15_000;
const run = promisify(execFile);

const PROBE = `
import json, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
def found(*names): return all(find_spec(n) is not None for n in names)
try: tessera = version("tessera") if found("tessera") else None
except PackageNotFoundError: tessera = "checkout"
print(json.dumps({"version": sys.version_info[:2], "tessera": tessera, "server": found("tessera_lsp", "pygls")}))
`;

/** The interpreters that the project may mean, the strongest wish first. In a workspace that is not trusted: only those
 * that nothing in the workspace can have chosen. */
export async function* candidates(folder: vscode.Uri | undefined): AsyncGenerator<Interpreter> {
  const setting = vscode.workspace.getConfiguration("tessera", folder).get<string>("interpreter");
  if (setting) {
    yield { path: resolveVariables(setting, folder), source: "the setting tessera.interpreter" };
  }
  if (vscode.workspace.isTrusted) {
    yield* named("the Python extension", await fromPythonExtension(folder));
    yield* named("the Python Environments extension", await fromEnvironments(folder));
    yield* named("the workspace's .venv", folder && (await firstThatRuns(inVenv(folder.fsPath))));
  }
  yield* named("PATH", await firstThatRuns(onPath()));
}

/** The first candidate that exists and may be run here. */
export async function find(folder: vscode.Uri | undefined): Promise<Interpreter | undefined> {
  for await (const candidate of candidates(folder)) {
    if (vscode.workspace.isTrusted || !(await insideWorkspace(candidate.path))) {
      return candidate;
    }
  }
  return undefined;
}

/** Raises where it does not run, or answers something else. */
export async function examine(interpreter: string, cwd: string): Promise<Facts> {
  const { stdout } = await run(interpreter, ["-c", PROBE], { cwd, timeout: TIMEOUT });
  return JSON.parse(stdout) as Facts;
}

export function isOlder([major, minor]: [number, number], than: [number, number]): boolean {
  return major < than[0] || (major === than[0] && minor < than[1]);
}

/** Tells when another extension has chosen another interpreter. */
export async function onDidChange(listener: () => void): Promise<vscode.Disposable[]> {
  const environments = await exported<Environments>(ENVIRONMENTS);
  const python = await pythonApi();
  return [
    ...(environments?.onDidChangeEnvironment ? [environments.onDidChangeEnvironment(listener)] : []),
    ...(python ? [python.environments.onDidChangeActiveEnvironmentPath(listener)] : []),
  ];
}

function* named(source: string, found: string | undefined): Generator<Interpreter> {
  if (found) {
    yield { path: found, source };
  }
}

/** The part of the Python Environments extension's API that is used here. */
interface Environments {
  getEnvironment(scope: vscode.Uri | undefined): Promise<{ execInfo?: { run?: { executable?: string } } } | undefined>;
  onDidChangeEnvironment?: vscode.Event<unknown>;
}

async function fromEnvironments(folder: vscode.Uri | undefined): Promise<string | undefined> {
  const api = await exported<Environments>(ENVIRONMENTS);
  return (await api?.getEnvironment(folder))?.execInfo?.run?.executable;
}

async function fromPythonExtension(folder: vscode.Uri | undefined): Promise<string | undefined> {
  const environments = (await pythonApi())?.environments;
  const active = environments?.getActiveEnvironmentPath(folder);
  const environment: Environment | undefined = active && (await environments?.resolveEnvironment(active));
  return environment?.executable.uri?.fsPath;
}

async function pythonApi(): Promise<PythonExtension | undefined> {
  const installed = vscode.extensions.getExtension("ms-python.python");
  return installed ? PythonExtension.api() : undefined;
}

async function exported<T>(id: string): Promise<T | undefined> {
  const extension = vscode.extensions.getExtension<T>(id);
  return extension && (extension.isActive ? extension.exports : extension.activate());
}

function inVenv(folder: string): string[] {
  const place = process.platform === "win32" ? ["Scripts", "python.exe"] : ["bin", "python"];
  return [path.join(folder, ".venv", ...place)];
}

function onPath(): string[] {
  const names = process.platform === "win32" ? ["python.exe", "python3.exe"] : ["python3", "python"];
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter((p) => path.isAbsolute(p));
  return folders.flatMap((folder) => names.map((name) => path.join(folder, name)));
}

async function firstThatRuns(paths: string[]): Promise<string | undefined> {
  for (const candidate of paths) {
    const allowed = vscode.workspace.isTrusted || !(await insideWorkspace(candidate));
    if (allowed && (await isExecutable(candidate))) {
      return candidate;
    }
  }
  return undefined;
}

async function isExecutable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** Also where only a link leads there, or where what a link in the workspace leads to is meant. */
async function insideWorkspace(file: string): Promise<boolean> {
  const real = await realpath(file).catch(() => file);
  for (const { uri } of vscode.workspace.workspaceFolders ?? []) {
    const root = await realpath(uri.fsPath).catch(() => uri.fsPath);
    if ([file, real].some((p) => [uri.fsPath, root].some((folder) => isWithin(folder, p)))) {
      return true;
    }
  }
  return false;
}

function isWithin(folder: string, file: string): boolean {
  const relative = path.relative(folder, file);
  return !relative.startsWith("..") && !path.isAbsolute(relative);
}

function resolveVariables(setting: string, folder: vscode.Uri | undefined): string {
  const filled = setting
    .replace(/\$\{workspaceFolder\}/g, folder?.fsPath ?? "")
    .replace(/\$\{env:(\w+)\}/g, (_, name: string) => process.env[name] ?? "")
    .replace(/^~(?=[/\\])/, process.env.HOME ?? process.env.USERPROFILE ?? "~");
  const isName = !/[\\/]/.test(filled); // of a program on PATH
  return isName || path.isAbsolute(filled) || !folder ? filled : path.join(folder.fsPath, filled);
}
