// Markdown as the repository has it: links outside code, titles, and the anchors of headings as GitHub forms them. Pure
// functions.

const FENCE = /^ *(```+|~~~+)/;
const CODE_SPAN = /(`+)(?!`)((?:(?!\n\s*\n)[\s\S])*?[^`])\1(?!`)/g;
const COMMENT = /<!--[\s\S]*?-->/g;
const INLINE_LINK = /(!?)\[(?:[^[\]]|\[[^\]]*\])*\]\(([^()\s]+)(?:\s+"[^"]*")?\)/g;
const DEFINITION = /^ {0,3}\[[^\]]+\]:\s+(\S+)/gm;

/** Returns the anchor of a heading with this text. */
export function anchorOf(text) {
  return text.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").trim().replaceAll(" ", "-");
}

/** Returns the text of the first heading. */
export function titleOf(markdown) {
  return /^# +(.+)$/m.exec(markdown)?.[1].replaceAll("`", "").trim();
}

/** Blanks out code and comments: what is left has the same length and the same lines. */
function prose(markdown) {
  let open = null;
  const lines = markdown.split("\n").map((line) => {
    const marks = FENCE.exec(line)?.[1];
    const isFence = marks !== undefined && (open === null || marks.startsWith(open));
    if (isFence) open = open === null ? marks : null;
    return isFence || open !== null ? " ".repeat(line.length) : line;
  });
  const blank = (text) => text.replace(/[^\n]/g, " ");
  return lines.join("\n").replace(COMMENT, blank).replace(CODE_SPAN, blank);
}

/** Returns the links outside code: `{start, end, target, isImage, line}`, where start and end enclose the target. */
export function linksOf(markdown) {
  const text = prose(markdown);
  const links = [];
  const add = (match, target, isImage) => {
    const start = match.index + match[0].lastIndexOf(target);
    links.push({
      start, end: start + target.length, target, isImage, line: text.slice(0, start).split("\n").length,
    });
  };
  for (const match of text.matchAll(INLINE_LINK)) add(match, match[2], match[1] === "!");
  for (const match of text.matchAll(DEFINITION)) add(match, match[1], false);
  return links.sort((a, b) => a.start - b.start);
}

/** Replaces the targets of links: `replace(link)` returns the new target. */
export function replaceLinks(markdown, replace) {
  let result = "";
  let end = 0;
  for (const link of linksOf(markdown)) {
    result += markdown.slice(end, link.start) + replace(link);
    end = link.end;
  }
  return result + markdown.slice(end);
}
