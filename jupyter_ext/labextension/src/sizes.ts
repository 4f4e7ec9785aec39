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
  call: string;
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

/** What was called, the arrays that names have, and the texts of the cells that bound them, for the server; see
 * tessera_jupyter/session/. */
export interface Live {
  called: Called[];
  arrays: Record<string, { shape: number[]; dtype: string }>;
  cells: Record<number, string>;
}

/** What the kernel has told. `cards` where the page follows it, all of them if
 * `whole`. */
export interface Told extends Live {
  cards?: Card[];
  whole?: boolean;
}

export const NOTHING: Told = { called: [], arrays: {}, cells: {} };

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
