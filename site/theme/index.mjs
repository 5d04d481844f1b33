// The theme of the site: that of VitePress without its fonts, with a chooser of versions.
import DefaultTheme from "vitepress/theme-without-fonts";
import { h } from "vue";
import VersionChooser from "./VersionChooser.vue";
import "./style.css";

export default {
  extends: DefaultTheme,
  Layout: () => h(DefaultTheme.Layout, null, {
    "nav-bar-content-before": () => h(VersionChooser, { class: "wide" }),
    "nav-screen-content-after": () => h(VersionChooser, { class: "narrow" }),
  }),
};
