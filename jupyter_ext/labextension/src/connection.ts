import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type * as lsp from 'vscode-languageserver-protocol';

/** Milliseconds after which an answer is given up, and the server with it: it has died, or hangs. */
const PATIENCE = 20_000;

/** What the bridge understands as the wish for another process; see tessera_jupyter/bridge.py. */
const RESTART = '$/tessera/restart';

/** Whether the language server answers: "waiting" is as long as a first answer is outstanding. */
export type Status = 'unused' | 'waiting' | 'ready' | 'lost';

const CAPABILITIES: lsp.ClientCapabilities = {
  general: { positionEncodings: ['utf-16'] },
  workspace: { applyEdit: false, inlayHint: { refreshSupport: true } },
  notebookDocument: { synchronization: { executionSummarySupport: true } },
  textDocument: {
    hover: { contentFormat: ['markdown'] },
    inlayHint: { resolveSupport: { properties: ['tooltip'] } },
    publishDiagnostics: { relatedInformation: true, codeDescriptionSupport: true },
    completion: { completionItem: { documentationFormat: ['markdown'], snippetSupport: false } },
    codeAction: { codeActionLiteralSupport: { codeActionKind: { valueSet: ['quickfix', 'quickfix.ignore'] } } }
  }
};

interface Waiting {
  resolve: (result: any) => void;
  reject: (reason: Error) => void;
}

/**
 * JSON-RPC with the language server, over the websocket bridge of jupyter-lsp.
 *
 * One process serves all pages, and the bridge sends each of its messages to every page: requests carry identifiers of
 * this page alone, and what answers others' is passed over.
 */
export class Connection {
  /** What the server says or asks of its own accord. */
  readonly notified = new Signal<this, { method: string; params: any }>(this);
  /** The connection has ended: the server has forgotten what was opened. */
  readonly closed = new Signal<this, void>(this);
  /** `status` has changed. */
  readonly statusChanged = new Signal<this, Status>(this);
  /** Tells this page from others that the same server serves. */
  readonly page = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

  private _socket: Promise<WebSocket> | null = null;
  private _waiting = new Map<string, Waiting>();
  private _number = 0;
  private _status: Status = 'unused';

  constructor(private _options: () => Promise<object>) {}

  get status(): Status {
    return this._status;
  }

  /** Has the bridge start another process. The connection ends, and is opened anew when it is next needed. */
  async restart(): Promise<void> {
    const socket = await this._socket?.catch(() => null);
    if (socket) {
      send(socket, { method: RESTART, params: {} });
    } else {
      this._ended(); // the listener tries again
    }
  }

  /** Whether somebody has opened the connection. */
  get opened(): boolean {
    return this._socket !== null;
  }

  /** Opens the connection where it is not open yet. Rejects where there is no server. */
  async ready(): Promise<void> {
    await (this._socket ??= this._open());
  }

  async request<R>(method: string, params: unknown): Promise<R> {
    return this._request<R>(await (this._socket ??= this._open()), method, params);
  }

  async notify(method: string, params: unknown): Promise<void> {
    send(await (this._socket ??= this._open()), { method, params });
  }

  private async _open(): Promise<WebSocket> {
    const settings = ServerConnection.makeSettings();
    const token = settings.token && settings.appendToken ? `?token=${encodeURIComponent(settings.token)}` : '';
    this._become('waiting');
    const socket = new settings.WebSocket(URLExt.join(settings.wsUrl, 'lsp', 'ws', 'tessera') + token);
    const opened = new Promise<void>((resolve, reject) => {
      socket.onopen = () => resolve();
      socket.onerror = () => reject(new Error('Tessera: no language server answers; is jupyter-lsp installed?'));
    });
    socket.onmessage = event => this._receive(socket, JSON.parse(event.data));
    socket.onclose = () => this._ended();
    await opened;
    await this._request(socket, 'initialize', {
      processId: null,
      rootUri: null,
      capabilities: CAPABILITIES,
      initializationOptions: await this._options()
    });
    send(socket, { method: 'initialized', params: {} });
    this._become('ready');
    return socket;
  }

  private _request<R>(socket: WebSocket, method: string, params: unknown): Promise<R> {
    const id = `${this.page}:${++this._number}`;
    const timer = window.setTimeout(() => {
      send(socket, { method: RESTART, params: {} });
      socket.close();
    }, PATIENCE);
    const answer = new Promise<R>((resolve, reject) => this._waiting.set(id, { resolve, reject }));
    send(socket, { id, method, params });
    return answer.finally(() => window.clearTimeout(timer));
  }

  private _receive(socket: WebSocket, message: any): void {
    if (message.method === undefined) {
      const waiting = this._waiting.get(message.id);
      this._waiting.delete(message.id);
      if (message.error) {
        waiting?.reject(new Error(message.error.message));
      } else {
        waiting?.resolve(message.result);
      }
    } else {
      if (message.id !== undefined) {
        send(socket, { id: message.id, result: null }); // requests of the server's: only refreshes are announced
      }
      this.notified.emit({ method: message.method, params: message.params });
    }
  }

  private _ended(): void {
    this._socket = null;
    this._become('lost');
    const waiting = [...this._waiting.values()];
    this._waiting.clear();
    waiting.forEach(w => w.reject(new Error('Tessera: the connection to the language server has ended')));
    this.closed.emit();
  }

  private _become(status: Status): void {
    if (status !== this._status) {
      this._status = status;
      this.statusChanged.emit(status);
    }
  }
}

function send(socket: WebSocket, message: object): void {
  if (socket.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  }
}
