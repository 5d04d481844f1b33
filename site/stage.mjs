// Collects the pages of the site from the repository: documents with links that fit the site, and a page for each other
// file or folder that a document links to, so that every link works without the repository.
import { existsSync, readFileSync, readdirSync, statSync } from "node:fs";
import path from "node:path";
import { replaceLinks, titleOf } from "./markdown.mjs";
import { ADDRESSES, LISTED_ELSEWHERE, REST, SECTIONS } from "./structure.mjs";

/** The largest file that gets a page with its text and is coloured. Colouring takes a second for each megabyte. */
const SHOWN_BYTES_MAX = 256 * 1024;
const COLOURED_BYTES_MAX = 24 * 1024;

/** The largest number of files that a page about a folder lists. */
const LISTED_FILES_MAX = 200;

/** Files of these folders are meant to be copied: each gets a page. */
const FOLDERS_WITH_PAGES = ["examples/"];

const IMAGE = /\.(svg|png|jpe?g|gif|webp)$/;
const LANGUAGES = {
  yaml: "yaml", yml: "yaml", json: "json", graphql: "graphql", sh: "sh", mjs: "js", js: "js", toml: "toml",
  service: "ini", Dockerfile: "docker",
};

const { posix } = path;
const posixList = (names) => names.map((name) => name.split(path.sep).join("/")).sort();
const isSkipped = (name) => /(^|\/)(node_modules|target|\.[^/]*)(\/|$)/.test(name);

/**
 * Returns `{pages, assets, sidebar, problems}`: pages by their path on the site (`quick-start.md` → text), assets by
 * theirs (→ path of the file), the navigation, and links that lead nowhere, each with its place. `base` is the path of
 * the site on its server.
 */
export function stage(root, base) {
  const site = { root, base, pages: new Map(), assets: new Map(), problems: [], titles: new Map() };
  const seen = new Set([...documentsIn(root, "docs"), ...SECTIONS.flatMap(listed).map(([file]) => file)]);
  const queue = [...seen];
  // Pages link to further files, which link to further ones.
  for (const file of queue) {
    for (const next of addPage(site, file)) {
      if (!seen.has(next)) {
        seen.add(next);
        queue.push(next);
      }
    }
  }
  return { ...site, sidebar: sidebarOf(site) };
}

function listed({ pages = [], groups = [] }) {
  return [...pages, ...groups.flatMap(listed)];
}

function documentsIn(root, folder) {
  const names = readdirSync(path.join(root, folder), { recursive: true }).filter((name) => name.endsWith(".md"));
  return posixList(names).map((name) => `${folder}/${name}`);
}

/** Returns the path of a page on the site. */
export function addressOf(file, isFolder = false) {
  if (ADDRESSES[file]) return ADDRESSES[file];
  if (isFolder) return `repository/${file}/index.md`;
  if (file.startsWith("docs/")) return file.slice("docs/".length);
  return file.endsWith(".md") ? `repository/${file}` : `repository/${file}.md`;
}

/** Adds the page of a file or folder, and returns the files to which it links. */
function addPage(site, file) {
  const full = path.join(site.root, file);
  const stats = statSync(full, { throwIfNoEntry: false });
  if (!stats) {
    site.problems.push(`site/structure.mjs: ${file}: no such file`);
    return [];
  }
  if (stats.isDirectory()) return addFolder(site, file);
  if (!file.endsWith(".md")) return addFile(site, file, stats.size);
  const next = [];
  const text = readFileSync(full, "utf8");
  site.titles.set(file, titleOf(text));
  put(site, addressOf(file), file, replaceLinks(text, (link) => targetOf(site, file, link, next)));
  return next;
}

function put(site, address, file, text) {
  if (site.pages.has(address)) site.problems.push(`${file}: another page has the address ${address} already`);
  site.pages.set(address, text);
}

/** Returns the target of a link as it is on the site, and adds its file to `next`. */
function targetOf(site, file, { target, isImage, line }, next) {
  if (/^([a-z][a-z0-9+.-]*:|\/\/|#)/i.test(target)) return target;
  const [name, anchor] = target.split("#");
  const linked = posix.normalize(posix.join(posix.dirname(file), name)).replace(/\/$/, "");
  const stats = statSync(path.join(site.root, linked), { throwIfNoEntry: false });
  if (linked.startsWith("..") || !stats) {
    site.problems.push(`${file}:${line}: ${target}: no such file`);
    return target;
  }
  const here = posix.dirname(addressOf(file));
  const relative = (address) => posix.relative(here, address);
  if (isImage || IMAGE.test(linked)) {
    const address = linked.startsWith("docs/") ? linked.slice("docs/".length) : `repository/${linked}`;
    site.assets.set(address, path.join(site.root, linked));
    return `./${relative(address)}`;
  }
  next.push(linked);
  return `./${relative(addressOf(linked, stats.isDirectory()))}${anchor === undefined ? "" : `#${anchor}`}`;
}

/** Pages that only show what is elsewhere are not searched. */
const UNSEARCHED = "---\nsearch: false\n---\n";

function addFile(site, file, size) {
  const full = path.join(site.root, file);
  const copy = `files/${file}`;
  site.assets.set(`public/${copy}`, full);
  const download = `<p><a href="${site.base}${copy}" download>Download</a></p>`;
  const content = readFileSync(full, "utf8");
  const extension = posix.basename(file).split(".").at(-1);
  const language = size > COLOURED_BYTES_MAX ? "text" : LANGUAGES[extension] ?? "text";
  const fence = "`".repeat(Math.max(3, ...[...content.matchAll(/`{3,}/g)].map(([marks]) => marks.length + 1)));
  const shown = size > SHOWN_BYTES_MAX ? "" : `\n${fence}${language}\n${content.replace(/\n?$/, "\n")}${fence}\n`;
  const text = `# ${posix.basename(file)}\n\nThe file \`${file}\` of the repository.\n\n${download}\n${shown}`;
  put(site, addressOf(file), file, `${UNSEARCHED}\n${text}`);
  return [];
}

function addFolder(site, folder) {
  const names = readdirSync(path.join(site.root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(path.join(site.root, folder), path.join(entry.parentPath ?? entry.path, entry.name)));
  const files = posixList(names).filter((name) => !isSkipped(name)).slice(0, LISTED_FILES_MAX);
  const havePages = FOLDERS_WITH_PAGES.some((start) => folder.startsWith(start));
  const address = addressOf(folder, true);
  const lines = files.map((name) => {
    const linked = posix.relative(posix.dirname(address), addressOf(`${folder}/${name}`));
    return havePages ? `- [\`${name}\`](./${linked})` : `- \`${name}\``;
  });
  put(site, address, folder, `${UNSEARCHED}\n# ${folder}\n\nA folder of the repository:\n\n${lines.join("\n")}\n`);
  return havePages ? files.map((name) => `${folder}/${name}`) : [];
}

/** The navigation in the form of VitePress. */
function sidebarOf(site) {
  const item = ([file, name]) => ({ text: name, link: `/${addressOf(file).replace(/\.md$/, "")}` });
  const all = new Set(SECTIONS.flatMap(listed).map(([file]) => file));
  const rest = documentsIn(site.root, "docs").filter((file) => !all.has(file) && !LISTED_ELSEWHERE.test(file));
  return SECTIONS.map(({ title, pages = [], groups = [] }) => {
    const more = title === REST.section && rest.length > 0
      ? [{ title: REST.title, pages: rest.map((file) => [file, site.titles.get(file) ?? file]) }]
      : [];
    return {
      text: title,
      collapsed: false,
      items: [
        ...pages.map(item),
        ...[...groups, ...more].map((group) => ({ text: group.title, collapsed: true, items: group.pages.map(item) })),
      ],
    };
  });
}

/** True if the packages of the site are installed. */
export function isInstalled(folder = import.meta.dirname) {
  return existsSync(path.join(folder, "node_modules/vitepress"));
}
