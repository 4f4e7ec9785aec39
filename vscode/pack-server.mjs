// Writes dist/server.br: what bundle_server.py prints, compressed as small as it goes. PYTHON says which Python runs it.
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants } from "node:zlib";

const text = execFileSync(process.env.PYTHON ?? "python3", ["bundle_server.py"], { maxBuffer: 1 << 26 });
const params = {
  [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
  [constants.BROTLI_PARAM_SIZE_HINT]: text.length,
};
mkdirSync("dist", { recursive: true });
writeFileSync("dist/server.br", brotliCompressSync(text, { params }));
