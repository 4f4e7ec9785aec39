import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { NotebookActions } from '@jupyterlab/notebook';
import type { Contents } from '@jupyterlab/services';
import type { FileChangeType, FileEvent } from 'vscode-languageserver-protocol';

import type { Connection } from './connection';

const CREATED: FileChangeType = 1;
const CHANGED: FileChangeType = 2;
const DELETED: FileChangeType = 3;

/**
 * Tells the server when the files that cells import may have changed.
 *
 * What is saved, renamed or deleted in this page is known by name. Of what others change nobody tells a page, so the
 * server is asked to look for itself when the person comes back to the window and when a cell has run.
 */
export function followDisk(connection: Connection, contents: Contents.IManager): void {
  const root = PageConfig.getOption('rootUri') || 'file:///';
  const tell = (changes: FileEvent[]): void => {
    if (changes.length && connection.opened) {
      connection.notify('workspace/didChangeWatchedFiles', { changes }).catch(console.debug);
    }
  };
  const event = (path: string | undefined, type: FileChangeType): FileEvent[] =>
    path && /\.(py|tess)$/.test(path) ? [{ uri: URLExt.join(root, URLExt.encodeParts(path)), type }] : [];
  contents.fileChanged.connect((_, { type, oldValue, newValue }) => {
    if (type === 'save') {
      tell(event(newValue?.path, CHANGED));
    } else {
      tell([...event(oldValue?.path, DELETED), ...event(newValue?.path, CREATED)]);
    }
  });
  const look = (): void => tell([{ uri: root, type: CREATED }]);
  window.addEventListener('focus', look);
  NotebookActions.executed.connect(look);
}
