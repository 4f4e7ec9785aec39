/** The bundled server: one compressed file in the extension, unpacked into the extension's storage at first use. */

import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import { brotliDecompress } from "node:zlib";
import type { ExtensionContext } from "vscode";

const decompress = promisify(brotliDecompress);

/** The folder to give to Python. Its name tells its content, so an update is another folder; older ones are removed. */
export async function unpack(context: ExtensionContext): Promise<string> {
  const packed = await readFile(context.asAbsolutePath("dist/server.br"));
  const storage = context.globalStorageUri.fsPath;
  const name = `server-${createHash("sha256").update(packed).digest("hex").slice(0, 16)}`;
  await mkdir(storage, { recursive: true });
  const present = (await readdir(storage)).filter((entry) => entry.startsWith("server-"));
  if (!present.includes(name)) {
    await write((await decompress(packed)).toString().split("\0"), path.join(storage, name));
    await Promise.all(present.map((old) => rm(path.join(storage, old), { recursive: true, force: true })));
  }
  return path.join(storage, name);
}

/** Paths and texts in turn. All or nothing: another window may be doing the same. */
async function write(parts: string[], folder: string): Promise<void> {
  const partial = `${folder}.${process.pid}`;
  for (let i = 0; i + 1 < parts.length; i += 2) {
    const file = path.join(partial, parts[i] ?? "");
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, parts[i + 1] ?? "");
  }
  await rename(partial, folder).catch(() => rm(partial, { recursive: true, force: true }));
}
