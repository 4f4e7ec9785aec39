import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

/** A function as it stands in a cell, and the sizes that its dims had at its last call. */
export interface Called {
  name: string;
  text: string;
  sizes: Record<string, number>;
}

/** See tessera_jupyter/session/cards.py. */
export interface Figure {
  label: string;
  value: string;
  source: string;
  reason: string;
}

/** What is known of a function or kernel of the session. */
export interface Card {
  name: string;
  kind: string;
  cell: string | null;
  file: string;
  text: string;
  brief: string;
  figures: Figure[];
  profile: {
    call: string;
    cell: string | null;
    when: number;
    earlier: boolean;
    time: string;
    source: string;
    figures: Figure[];
    kernels: { title: string; time: string; share: string; bound: string; roof: string }[];
  } | null;
  edits: { text: string; verdict: string; compared: boolean }[];
}

/** The arrays that names have, and the texts of the cells that bound them, for the server; see
 * tessera_jupyter/session/arrays.py. */
export interface Live {
  arrays: Record<string, { shape: number[]; dtype: string }>;
  cells: Record<number, string>;
}

/** What the kernel has told: what was called, and what it holds. `cards` where the page follows it, all of them if
 * `whole`. */
export interface Told extends Live {
  called: Called[];
  cards?: Card[];
  whole?: boolean;
}

export const NOTHING: Told = { called: [], arrays: {}, cells: {} };

/** Where such a function stands in a text: its extent, and the end of the line that names it. */
export interface Place extends Called {
  from: number;
  to: number;
  headEnd: number;
}

const TARGET = 'tessera.session';
/** Statuses of a kernel that holds nothing any more. */
export const GONE = ['restarting', 'autorestarting', 'terminating', 'dead', 'unknown'];

/** Tells what the kernel of a notebook has called and holds, after each cell that ran, and nothing once it starts
 * again. */
export function followKernel(panel: NotebookPanel, tell: (told: Told) => void): void {
  const context = panel.sessionContext;
  const listen = (kernel: Kernel.IKernelConnection | null | undefined): void => {
    tell(NOTHING);
    kernel?.registerCommTarget(TARGET, (_, opened) => tell({ ...NOTHING, ...(opened.content.data as object) }));
  };
  context.kernelChanged.connect((_, { newValue }) => listen(newValue));
  context.statusChanged.connect((_, status) => {
    if (GONE.includes(status)) {
      tell(NOTHING);
    }
  });
  listen(context.session?.kernel);
}

/** The functions that stand in a text just as they were when they were called. */
export function places(text: string, called: Called[]): Place[] {
  const found: Place[] = [];
  for (const each of called) {
    const from = `\n${text}\n`.indexOf(`\n${each.text}\n`);
    const name = each.text.search(/^\s*(async\s+)?def\s/m);
    if (from >= 0 && name >= 0) {
      const head = from + name + each.text.slice(name).search(/\S/); // blank lines may stand before it
      const lineEnd = text.indexOf('\n', head);
      found.push({ ...each, from, to: from + each.text.length, headEnd: lineEnd < 0 ? text.length : lineEnd });
    }
  }
  return found;
}

/** `B=32, S=128 now` */
export function describe(sizes: Record<string, number>, names = Object.keys(sizes)): string {
  return `${names.map(n => `${n}=${sizes[n]}`).join(', ')} now`;
}
