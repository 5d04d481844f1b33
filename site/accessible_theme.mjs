// Changes of the theme of VitePress that make it accessible. Each replaces text of a component, and fails the build if a
// newer version of the theme no longer has that text.

const CHANGES = {
  // The start page has no main landmark.
  "VPHome.vue": [
    [/<div(\s+)class="VPHome"/, '<main$1class="VPHome"'],
    [/<\/div>(\s*<\/template>\s*<style)/, "</main>$1"],
  ],
  // A section of the navigation is a button with another one inside, and does not say whether it is open.
  "VPSidebarItem.vue": [
    [/role="button"(\s+)aria-label="toggle section"/, ":role=\"item.link ? 'button' : undefined\"$1"
      + ":aria-label=\"item.link ? 'toggle section' : undefined\""],
    [/(@keydown\.enter="onCaretClick"\s+)tabindex="0"/, '$1:tabindex="item.link ? 0 : undefined"'],
    [/:tabindex="item\.items && 0"/, ':tabindex="item.items && 0" :aria-expanded="item.items ? !collapsed : undefined"'],
  ],
};

/** Returns the plugin of Vite that applies the changes. */
export function accessibleTheme() {
  const changed = new Set();
  return {
    name: "starling-accessible-theme",
    enforce: "pre",
    transform(code, id) {
      const name = /theme-default\/components\/(\w+\.vue)$/.exec(id)?.[1];
      if (!CHANGES[name]) return null;
      changed.add(name);
      return CHANGES[name].reduce((text, [from, to]) => {
        if (!from.test(text)) throw new Error(`${name} of the theme has no ${from}: adapt site/accessible_theme.mjs`);
        return text.replace(from, to);
      }, code);
    },
    buildEnd(error) {
      const missing = Object.keys(CHANGES).filter((name) => !changed.has(name));
      if (!error && missing.length > 0) throw new Error(`the theme has no ${missing}: adapt site/accessible_theme.mjs`);
    },
  };
}
