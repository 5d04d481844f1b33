// Checks a built site: every link leads to a file, every anchor to an element, and nothing is loaded from elsewhere.
import { readFileSync, readdirSync, statSync } from "node:fs";
import path from "node:path";

const ATTRIBUTE = /<([a-zA-Z][\w-]*)\b[^>]*?\s(href|src)="([^"]*)"/g;
const ID = /\sid="([^"]*)"/g;
const ELSEWHERE = /^(?:[a-z][a-z0-9+.-]*:)?\/\//i;
/** What a style sheet loads. */
const LOADED = /@import\s+(?:url\()?["']?([^"');\s]+)|url\(\s*["']?([^"')]+)/g;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };

const decode = (text) => text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name) => ENTITIES[name]);

/**
 * Checks the site in `folder`, whose address on its server is `base` (`/0.1.0/`). Returns `{pages, links, problems}`,
 * where each problem is one line.
 */
export function checkLinks(folder, base) {
  const files = readdirSync(folder, { recursive: true }).map((name) => name.split(path.sep).join("/"));
  const html = files.filter((name) => name.endsWith(".html")).sort();
  const texts = new Map(html.map((name) => [name, readFileSync(path.join(folder, name), "utf8")]));
  const anchors = new Map([...texts].map(([name, text]) => [
    name, new Set([...text.matchAll(ID)].map(([, id]) => decode(id))),
  ]));
  const exists = new Set(files.filter((name) => statSync(path.join(folder, name)).isFile()));
  const problems = [];
  let links = 0;
  for (const [name, text] of texts) {
    for (const [, element, attribute, value] of text.matchAll(ATTRIBUTE)) {
      const target = decode(value);
      const isLoaded = attribute === "src" || element === "link";
      if (ELSEWHERE.test(target)) {
        if (isLoaded) problems.push(`${name}: loads ${target} from another server`);
        continue;
      }
      if (/^[a-z][a-z0-9+.-]*:/i.test(target)) continue;
      links += 1;
      const problem = problemOf(new URL(target, `http://site${base}${name}`), base, exists, anchors);
      if (problem) problems.push(`${name}: ${target}: ${problem}`);
    }
  }
  for (const name of files.filter((it) => it.endsWith(".css"))) {
    for (const [, imported, url] of readFileSync(path.join(folder, name), "utf8").matchAll(LOADED)) {
      if (ELSEWHERE.test(imported ?? url)) problems.push(`${name}: loads ${imported ?? url} from another server`);
    }
  }
  return { pages: html.length, links, problems: [...new Set(problems)] };
}

function problemOf(url, base, exists, anchors) {
  const pathname = decodeURIComponent(url.pathname);
  if (!pathname.startsWith(base)) return "leads out of the site";
  let file = pathname.slice(base.length);
  if (file === "" || file.endsWith("/")) file += "index.html";
  if (!exists.has(file)) return "no such page";
  const anchor = decodeURIComponent(url.hash.slice(1));
  const hasAnchor = anchor === "" || !anchors.has(file) || anchors.get(file).has(anchor);
  return hasAnchor ? null : "no such heading";
}
