// The fenced code blocks of a Markdown page, with the annotation that says how each is tested. Pure functions.
//
// An annotation is an HTML comment on the line before the fence, invisible to readers:
//
//     <!-- test: WORD KEY=VALUE KEY="VALUE WITH SPACES" -->
//
// CONTRIBUTING.md lists the words and keys.

/** Words without a value. */
const WORDS = new Set(["background", "composition", "terminals", "errors", "fails", "fragment", "input", "not-run"]);

/** Keys with a value. */
const KEYS = new Set(["file", "graph", "serve", "until", "expect", "setup", "reason", "subgraph"]);

const FENCE = /^( *)(```+)(\S*)\s*$/;
const ANNOTATION = /^ *<!-- test: (.*) -->\s*$/;
const TERM = /\s*([a-z-]+)(?:=(?:"((?:[^"\\]|\\.)*)"|(\S+)))?/y;

/**
 * The blocks of `markdown` in order: `{page, line, language, annotation, text}`. `line` is that of the fence; `text`
 * has the indentation of the fence removed and ends with a line break.
 */
export function blocksOf(markdown, page) {
  const blocks = [];
  const lines = markdown.split("\n");
  let open = null;
  lines.forEach((content, index) => {
    const fence = FENCE.exec(content);
    if (!open) {
      if (!fence) return;
      const [, indentation, marks, language] = fence;
      const annotation = ANNOTATION.exec(lines[index - 1] ?? "");
      const place = `${page}:${index + 1}`;
      open = {
        indentation, marks, text: [],
        block: {
          page, line: index + 1, place, language,
          annotation: annotation ? parseAnnotation(annotation[1], place) : {},
        },
      };
      return;
    }
    if (fence && fence[2].length >= open.marks.length && fence[3] === "") {
      blocks.push({ ...open.block, text: `${open.text.join("\n")}\n` });
      open = null;
      return;
    }
    open.text.push(content.startsWith(open.indentation) ? content.slice(open.indentation.length) : content.trimStart());
  });
  if (open) throw new Error(`${open.block.place}: the fence is never closed`);
  return blocks;
}

/** Annotations of `markdown` that no fence follows: mistakes, since nothing reads them. */
export function strayAnnotations(markdown, page) {
  const lines = markdown.split("\n");
  return lines.flatMap((content, index) =>
    /<!--\s*test\b/.test(content) && !(ANNOTATION.test(content) && FENCE.test(lines[index + 1] ?? ""))
      ? [`${page}:${index + 1}`]
      : []);
}

function parseAnnotation(text, place) {
  const annotation = {};
  TERM.lastIndex = 0;
  let end = 0;
  for (let term; (term = TERM.exec(text)); end = TERM.lastIndex) {
    const [, name, quoted, plain] = term;
    const value = quoted?.replace(/\\(["\\])/g, "$1") ?? plain;
    const isKnown = value === undefined ? WORDS.has(name) : KEYS.has(name);
    if (!isKnown) throw new Error(`${place}: the annotation has an unknown ${value === undefined ? "word" : "key"} \`${name}\``);
    annotation[name] = value ?? true;
  }
  if (text.slice(end).trim() !== "") throw new Error(`${place}: the annotation cannot be read at \`${text.slice(end)}\``);
  if (annotation["not-run"] && !annotation.reason) throw new Error(`${place}: \`not-run\` needs a \`reason\``);
  if (annotation.background && !annotation.until) throw new Error(`${place}: \`background\` needs \`until\``);
  return annotation;
}

/**
 * The commands of a shell block: lines that end with a backslash go on, and so do lines inside quotes, here documents,
 * loops and functions.
 */
export function commandsOf(text) {
  const lines = text.split("\n");
  const commands = [];
  for (let index = 0; index < lines.length; index += 1) {
    if (/^\s*(#.*)?$/.test(lines[index])) continue;
    let command = lines[index];
    const here = /<<-?\s*['"]?(\w+)['"]?/.exec(command);
    if (here) {
      while (index + 1 < lines.length && lines[index + 1].trim() !== here[1]) command += `\n${lines[index += 1]}`;
      command += `\n${lines[index += 1] ?? ""}`;
    } else {
      while (index + 1 < lines.length && isUnfinished(command)) command += `\n${lines[index += 1]}`;
    }
    commands.push(command);
  }
  return commands;
}

function isUnfinished(command) {
  if (/\\$/.test(command)) return true;
  let quote = null;
  let unquoted = "";
  for (let at = 0; at < command.length; at += 1) {
    const mark = command[at];
    if (mark === "\\" && quote !== "'") at += 1;
    else if (quote === null && (mark === "'" || mark === '"')) quote = mark;
    else if (mark === quote) quote = null;
    else if (quote === null) unquoted += mark;
  }
  if (quote !== null) return true;
  // An open loop, function or group.
  const opened = (unquoted.match(/(^|\s)(do|then|\{)(?=\s|$)/g) ?? []).length;
  const closed = (unquoted.match(/(^|[\s;])(done|fi|\})(?=\s|;|$|\))/g) ?? []).length;
  return opened > closed;
}
