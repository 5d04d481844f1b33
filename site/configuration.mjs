// The configuration of VitePress, which `build.mjs` gives the staged pages.
import { accessibleTheme } from "./accessible_theme.mjs";
import { drawDiagram } from "./diagrams.mjs";
import { anchorOf } from "./markdown.mjs";

/** Colours of code with enough contrast for small text. */
const CODE_THEMES = { light: "github-light-high-contrast", dark: "github-dark-high-contrast" };

/** Returns the configuration. `parent` is the path above the folders of all versions, `base` that of this version. */
export function configuration({ version, parent, base, sidebar }) {
  const first = (title) => {
    const { items } = sidebar.find((section) => section.text === title);
    return (items[0].items ?? items)[0].link;
  };
  return {
    lang: "en",
    title: "Starling",
    titleTemplate: `:title · Starling ${version}`,
    description: "The federated GraphQL router for live data.",
    base,
    head: [["link", { rel: "icon", href: `${base}icon.svg`, type: "image/svg+xml" }]],
    cleanUrls: false,
    lastUpdated: false,
    // Addresses on the machine of the reader, such as that of a demo.
    ignoreDeadLinks: "localhostLinks",
    markdown: {
      theme: CODE_THEMES,
      anchor: { slugify: anchorOf },
      // Only what GitHub knows has a meaning, because documents are read there too.
      attrs: { disable: true },
      config: printMarkdown,
    },
    themeConfig: {
      version,
      parent,
      nav: ["Start", "Guides", "Reference", "Concepts", "Project"].map((text) => ({ text, link: first(text) })),
      sidebar,
      outline: { level: [2, 3], label: "On this page" },
      search: { provider: "local", options: { detailedView: "auto" } },
      docFooter: { prev: "Before", next: "Next" },
      externalLinkIcon: true,
    },
    vite: { build: { chunkSizeWarningLimit: 4096 }, plugins: [accessibleTheme()] },
  };
}

/** Changes how Markdown is printed: diagrams are drawn, and what is wide is scrolled by itself, also by keyboard. */
function printMarkdown({ core, renderer: { rules }, utils: { escapeHtml } }) {
  core.ruler.disable("emoji");
  const { fence } = rules;
  // Templates in the documents (`{{ args.id }}`) are none of Vue.
  rules.code_inline = (tokens, index) => `<code v-pre>${escapeHtml(tokens[index].content)}</code>`;
  rules.fence = (tokens, index, ...others) => {
    const { info, content } = tokens[index];
    if (info.trim() === "mermaid") return drawDiagram(content, `diagram-${index}`);
    return fence(tokens, index, ...others);
  };
  // The corner of a table is no header.
  rules.th_open = (tokens, index, options, env, self) => {
    if (tokens[index + 1].content.trim() === "") tokens[index].tag = tokens[index + 2].tag = "td";
    return self.renderToken(tokens, index, options);
  };
  rules.table_open = () => '<div class="table" tabindex="0"><table>\n';
  rules.table_close = () => "</table></div>\n";
}
