/** The sizes that a function's arguments are made with: those that neither its text nor the settings say are asked for. */

import * as vscode from "vscode";
import type { Client } from "./client";
import type { Place } from "./ir";

/** What the server answers to `tessera/sizes`. */
interface Sizes {
  function: string;
  sizes: Record<string, number>;
  open: string[];
}

/** The function at a place and a size for everything in it; undefined where the person gave up. What was answered last is
 * offered again. */
export async function askSizes(
  memory: vscode.Memento,
  client: Client,
  { source, function: name, position }: Place,
): Promise<{ name: string; sizes: Record<string, number> } | undefined> {
  const found = await client.request<Sizes>("tessera/sizes", {
    textDocument: { uri: source },
    function: name,
    position,
  });
  const { open } = found;
  if (open.length === 0) {
    return { name: found.function, sizes: found.sizes };
  }
  const key = `sizes ${source} ${found.function}`;
  const before = memory.get<Record<string, number>>(key, {});
  const answer = await vscode.window.showInputBox({
    title: `Profile ${found.function}`,
    prompt: "Sizes of the arguments, which are random numbers. The setting tessera.dims gives them once and for all.",
    value: open.map((dim) => `${dim}=${before[dim] ?? found.sizes[dim]}`).join(", "),
    validateInput: (text) => parse(text, open).problem,
    ignoreFocusOut: true,
  });
  if (answer === undefined) {
    return undefined;
  }
  const { sizes } = parse(answer, open);
  await memory.update(key, sizes);
  return { name: found.function, sizes: { ...found.sizes, ...sizes } };
}

/** `B=8, S=1024`; what is left out keeps the size that it had. */
function parse(text: string, names: string[]): { sizes: Record<string, number>; problem?: string } {
  const sizes: Record<string, number> = {};
  for (const part of text.split(",").filter((p) => p.trim())) {
    const [, name, size] = /^\s*(.+?)\s*=\s*(\d{1,15})\s*$/.exec(part) ?? [];
    if (!name || !size) {
      return { sizes, problem: `"${part.trim()}" is not NAME=SIZE, as in ${names[0]}=1024` };
    }
    if (!names.includes(name)) {
      return { sizes, problem: `There is no ${name}; there is ${names.join(", ")}` };
    }
    sizes[name] = Number(size);
  }
  return { sizes };
}
