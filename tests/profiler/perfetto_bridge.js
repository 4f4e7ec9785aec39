// Runs Perfetto's trace processor (WebAssembly, as shipped for the browser) under Node: requests come in on stdin,
// answers go out on stdout, both as the length-delimited protobufs of TraceProcessorRpcStream.
//
// usage: node perfetto_bridge.js FOLDER, where FOLDER holds engine_bundle.js and its .wasm files
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const folder = process.argv[2];

// The bundle is a web worker. It gets the few browser objects that it touches, and files instead of downloads.
class LocalRequest {
  open(_method, url) {
    this.url = url;
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
    this.responseText = '';
  }
}
globalThis.self = globalThis;
globalThis.location = { href: `file://${folder}/engine_bundle.js` };
globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
globalThis.importScripts = () => {};
globalThis.XMLHttpRequest = LocalRequest;
console.log = console.error; // stdout carries the protocol

// Emscripten's loader would take Node's own path, which this build lacks: hide that this is Node.
Object.defineProperty(process, 'versions', { value: { ...process.versions, node: undefined } });
Object.defineProperty(process, 'type', { value: 'renderer' });

vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));

function writeAll(bytes) {
  for (let sent = 0; sent < bytes.length; ) {
    try {
      sent += fs.writeSync(1, bytes, sent);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

const port = { onmessage: null, postMessage: writeAll };
setTimeout(() => {
  self.onmessage({ data: port });
  const buffer = Buffer.alloc(1 << 22);
  for (;;) {
    let count;
    try {
      count = fs.readSync(0, buffer, 0, buffer.length, null);
    } catch (error) {
      if (error.code === 'EAGAIN') continue;
      throw error;
    }
    if (count === 0) break;
    port.onmessage({ data: new Uint8Array(buffer.subarray(0, count)) });
  }
}, 50);
