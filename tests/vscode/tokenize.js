// Prints [line, token, innermost scope] of the text on standard input, the first of each token in a line.
// node tokenize.js NODE_MODULES_OF_CODE_SERVER GRAMMAR
const fs = require("node:fs");
const path = require("node:path");
const [modules, grammar] = process.argv.slice(2);
const code = path.join(modules, "code-server/lib/vscode");
const textmate = require(path.join(code, "node_modules/vscode-textmate"));
const oniguruma = require(path.join(code, "node_modules/vscode-oniguruma"));
const own = JSON.parse(fs.readFileSync(grammar, "utf8")).scopeName;
const files = {
  [own]: grammar,
  "source.python": path.join(code, "extensions/python/syntaxes/MagicPython.tmLanguage.json"),
};

async function main() {
  await oniguruma.loadWASM(fs.readFileSync(path.join(code, "node_modules/vscode-oniguruma/release/onig.wasm")));
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async (name) => files[name] && textmate.parseRawGrammar(fs.readFileSync(files[name], "utf8"), files[name]),
  });
  const tess = await registry.loadGrammar(own);
  const found = new Map();
  let state = textmate.INITIAL;
  fs.readFileSync(0, "utf8").split("\n").forEach((line, number) => {
    const { tokens, ruleStack } = tess.tokenizeLine(line, state);
    state = ruleStack;
    for (const { startIndex, endIndex, scopes } of tokens) {
      const key = JSON.stringify([number, line.slice(startIndex, endIndex).trim()]);
      if (!found.has(key)) found.set(key, scopes.at(-1));
    }
  });
  console.log(JSON.stringify([...found].map(([key, scope]) => [...JSON.parse(key), scope])));
}

main();
