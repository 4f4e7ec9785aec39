// Stands for the native module by which VS Code writes its logs, and which is not built here: the same interface, with
// plain files. Without it the output channels of extensions stay empty.
const { appendFileSync, mkdirSync } = require("fs");
const { dirname } = require("path");

class Logger {
  constructor(kind, name, file) {
    mkdirSync(dirname(file), { recursive: true });
    Object.assign(this, { file, level: 2, plain: false });
  }
  write(level, name, message) {
    if (level >= this.level) {
      const time = new Date().toISOString().replace("T", " ").replace("Z", "");
      appendFileSync(this.file, this.plain ? message : `${time} [${name}] ${message}\n`);
    }
  }
  trace(message) { this.write(0, "trace", message); }
  debug(message) { this.write(1, "debug", message); }
  info(message) { this.write(2, "info", message); }
  warn(message) { this.write(3, "warning", message); }
  error(message) { this.write(4, "error", message); }
  critical(message) { this.write(5, "critical", message); }
  getLevel() { return this.level; }
  setLevel(level) { this.level = level; }
  clearFormatters() { this.plain = true; }
  setPattern() {}
  flush() {}
  drop() {}
}

// One by one: that is how they are found where this is imported as an ECMAScript module.
exports.version = 0;
exports.Logger = Logger;
exports.setLevel = () => {};
exports.setFlushOn = () => {};
exports.createRotatingLogger = async (name, file) => new Logger("", name, file);
exports.createAsyncRotatingLogger = exports.createRotatingLogger;
