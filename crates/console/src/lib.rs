//! The pages of the console on the admin listener: one document with scripts and styles, all of them in the binary.
//!
//! The pages know nothing of the router's internals: they read the JSON below `api/`, which `server::console_api`
//! writes, and show it. They need no build step and no library. Nothing is loaded from another origin.
//!
//! [`asset`] maps paths to files. This crate has no HTTP server: the caller writes the response, with [`HEADERS`].

/// The value of `Content-Security-Policy`. Scripts and styles come from the origin of the page only, and never from the
/// document; nothing is loaded from or sent to another origin; no other page may show this one in a frame.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every file in addition to its content type.
pub const HEADERS: [(&str, &str); 4] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];

/// A file of the console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asset {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The content.
    pub text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Lists the files with their paths below that of the console.
macro_rules! assets {
    ($($path:literal, $content_type:ident, $file:literal;)+) => {
        const ASSETS: &[(&str, Asset)] = &[
            $(($path, Asset { content_type: $content_type, text: include_str!($file) }),)+
        ];
    };
}

assets! {
    "", HTML, "../pages/index.html";
    "icon.svg", SVG, "../pages/icon.svg";
    "style.css", CSS, "../pages/style.css";
    "main.js", JAVASCRIPT, "../pages/main.js";
    "api.js", JAVASCRIPT, "../pages/api.js";
    "elements.js", JAVASCRIPT, "../pages/elements.js";
    "format.js", JAVASCRIPT, "../pages/format.js";
    "rates.js", JAVASCRIPT, "../pages/rates.js";
    "drawing.js", JAVASCRIPT, "../pages/drawing.js";
    "chart.js", JAVASCRIPT, "../pages/chart.js";
    "plan.js", JAVASCRIPT, "../pages/plan.js";
    "overview.js", JAVASCRIPT, "../pages/overview.js";
    "operations.js", JAVASCRIPT, "../pages/operations.js";
    "live.js", JAVASCRIPT, "../pages/live.js";
    "event_paths.js", JAVASCRIPT, "../pages/event_paths.js";
    "subscribers.js", JAVASCRIPT, "../pages/subscribers.js";
    "graph.js", JAVASCRIPT, "../pages/graph.js";
    "slow.js", JAVASCRIPT, "../pages/slow.js";
    "tools.js", JAVASCRIPT, "../pages/tools.js";
}

/// Returns the file at a path below that of the console; the document itself has the empty path.
pub fn asset(path: &str) -> Option<Asset> {
    ASSETS.iter().find(|(known, _)| *known == path).map(|(_, asset)| *asset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_file_refers_to_exists() {
        let quoted = |text: &str, before: &str| -> Vec<String> {
            let parts = text.split(before).skip(1);
            parts.map(|part| part.split('"').next().unwrap_or_default().to_owned()).collect()
        };
        for (path, Asset { text, .. }) in ASSETS {
            let imports = quoted(text, "from \"./");
            let links = [quoted(text, "src=\""), quoted(text, "href=\"")].concat();
            let links = links.into_iter().filter(|it| !it.starts_with('#'));
            for wanted in imports.into_iter().chain(links) {
                assert!(asset(&wanted).is_some(), "{path} refers to {wanted}");
            }
        }
        assert_eq!(asset("index.html"), None);
    }

    #[test]
    fn no_file_contains_what_its_policy_forbids_or_puts_texts_into_markup() {
        for (path, Asset { text, .. }) in ASSETS {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                " onclick=",
            ] {
                assert!(!text.contains(forbidden), "{path} contains {forbidden}");
            }
            let addresses = text.replace("http://www.w3.org/", "");
            assert!(!addresses.contains("http://") && !addresses.contains("https://"), "{path}");
        }
    }
}
