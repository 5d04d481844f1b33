// Diagrams: blocks of Mermaid become SVG when the site is built, so that a page needs no library to show them.
import { renderMermaidSVG } from "beautiful-mermaid";

/** Colours are variables of `theme/style.css`, which follow light and dark mode. */
const COLOURS = {
  bg: "var(--diagram-background)", fg: "var(--diagram-text)", line: "var(--diagram-line)",
  accent: "var(--diagram-line)", muted: "var(--diagram-quiet)", surface: "var(--diagram-box)",
  border: "var(--diagram-border)",
};

/** What a diagram shows, for readers that do not see it. GitHub reads the same lines. */
const DESCRIPTION = /^\s*acc(Title|Descr):\s*(.+)$/gm;

const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

/** The least scale of a diagram on a small screen, where it is scrolled rather than made unreadable. */
const SCALE_MIN = 0.7;

/** Returns the HTML of a diagram. `name` makes its ids unique in the page. */
export function drawDiagram(source, name) {
  const said = Object.fromEntries([...source.matchAll(DESCRIPTION)].map(([, kind, text]) => [kind, text]));
  const label = [said.Title, said.Descr].filter(Boolean).join(". ") || "Diagram";
  const drawn = renderMermaidSVG(source.replace(DESCRIPTION, ""), { ...COLOURS, font: "system-ui", transparent: true })
    // The rules are in `theme/style.css`; these would load a font.
    .replace(/<style>[\s\S]*?<\/style>/g, "")
    .replace(/\bid="([^"]+)"/g, `id="${name}-$1"`)
    .replace(/url\(#([^)]+)\)/g, `url(#${name}-$1)`)
    .replace("<svg ", `<svg role="img" aria-label="${escape(label)}" `);
  // The drawing always states its size.
  const width = Number(/\swidth="([\d.]+)"/.exec(drawn)[1]);
  const svg = drawn.replace('style="', `style="--least-width:${Math.round(SCALE_MIN * width)}px;`);
  return `<figure class="diagram" tabindex="0" v-pre>${svg}</figure>\n`;
}
