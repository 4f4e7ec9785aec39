import type { NotebookPanel } from '@jupyterlab/notebook';
import { OutputAreaModel, SimplifiedOutputArea } from '@jupyterlab/outputarea';

/** Where the outcome of a button stands, and what the button shows meanwhile. */
export interface RunPlace {
  /** What the kernel says stands at the end of it. */
  below: HTMLElement;
  button: HTMLElement;
  stop: HTMLElement;
  said: HTMLElement;
}

/** What buttons have the kernel do, and its outputs, which stand beside the buttons. */
export class Runs {
  private _areas = new Set<SimplifiedOutputArea>();

  /** Takes away what runs have said inside of an element. */
  end(element: HTMLElement): void {
    for (const area of [...this._areas].filter(a => element.contains(a.node))) {
      this._areas.delete(area);
      area.node.remove();
      area.dispose();
    }
  }

  /** Has the kernel of a notebook run a line of `%tessera`, and tells whether that went well. `lost`: what to say where
   * the kernel has no such magic. */
  async start(panel: NotebookPanel | null | undefined, line: string, lost: string, place: RunPlace): Promise<boolean> {
    const { below, button, stop, said } = place;
    const kernel = panel?.sessionContext.session?.kernel;
    if (!panel || !kernel) {
      said.textContent = 'No kernel runs: start one and profile again.';
      return false;
    }
    this.end(below);
    const area = new SimplifiedOutputArea({
      model: new OutputAreaModel({ trusted: true }),
      rendermime: panel.content.rendermime
    });
    this._areas.add(area);
    below.append(area.node);
    button.setAttribute('aria-disabled', 'true');
    said.textContent = kernel.status === 'idle' ? '' : 'Waiting for the kernel';
    // A notebook that is opened again shows panels before its kernel has loaded the extension.
    const code = [
      'if get_ipython().find_line_magic("tessera") is None:',
      `    print(${JSON.stringify(lost)})`,
      'else:',
      `    get_ipython().run_line_magic("tessera", ${JSON.stringify(line)})`
    ].join('\n');
    const future = kernel.requestExecute({ code, store_history: false, stop_on_error: false });
    area.future = future;
    const begun = (_: unknown, message: { parent_header: object }): void => {
      const parent = message.parent_header as { msg_id?: string };
      if (parent.msg_id === future.msg.header.msg_id) {
        kernel.iopubMessage.disconnect(begun);
        said.textContent = 'Running';
        stop.hidden = false; // before, it would stop what the kernel does for others
      }
    };
    kernel.iopubMessage.connect(begun);
    stop.onclick = () => void kernel.interrupt();
    let well = false;
    try {
      well = (await future.done).content.status === 'ok';
      said.textContent = '';
    } catch {
      said.textContent = 'Not finished: the kernel has ended, or started again.';
    }
    kernel.iopubMessage.disconnect(begun);
    stop.hidden = true;
    button.removeAttribute('aria-disabled');
    return well;
  }
}

export function action(name: string): HTMLButtonElement {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'tessera-action';
  button.textContent = name;
  button.addEventListener('keydown', event => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.stopPropagation(); // the notebook has keys of its own
    }
  });
  return button;
}

export function status(): HTMLElement {
  const said = document.createElement('span');
  said.className = 'tessera-said';
  said.setAttribute('role', 'status');
  return said;
}
