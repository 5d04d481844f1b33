//! The page at the root of the router: GraphiQL bundled at build time, or a plain page of this project.
//!
//! [`Page::new`] takes the API's address and the initial tabs; [`Page::asset`] maps paths to bytes and headers. This
//! crate has no HTTP server: the caller writes the response. Everything that a browser needs is inside the binary; no
//! asset is fetched from elsewhere.
//!
//! | path | content |
//! |---|---|
//! | `/` | GraphiQL, or the plain page in a build without it ([`IS_GRAPHIQL`]) |
//! | `/ide/plain` | the plain page, in every build |
//! | `/ide/…` | the scripts and styles of both pages |
//!
//! `build.rs` bundles GraphiQL and decides whether it is included.

mod asset;
mod page_config;
mod template;

pub use asset::{Asset, EncodedBody};
pub use page_config::{PageConfig, Tab};

use asset::{CSS, HTML, JAVASCRIPT, SVG};

/// True if this build contains GraphiQL. Otherwise `/` is the plain page.
pub const IS_GRAPHIQL: bool = cfg!(graphiql);

/// The value of `Content-Security-Policy` for every asset.
///
/// Scripts come from this origin only and never from the document. Nothing is loaded from or sent to another origin,
/// even if a schema's descriptions (which GraphiQL renders as Markdown) refer to one. `connect-src 'self'` covers
/// WebSockets to the same host (CSP level 3, section 6.7.2.8). Style elements are allowed because GraphiQL's widgets
/// insert some.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every asset in addition to content type, encoding and entity tag.
///
/// `no-cache` makes the browser revalidate before each use: with the entity tag a reload costs one small exchange, and
/// a new build of the router is never shown with the scripts of the old one.
pub const HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
];

/// The page for one configuration. It is built once; its assets are shared bytes.
#[derive(Clone, Debug)]
pub struct Page {
    root: Asset,
    plain: Asset,
}

impl Page {
    /// Renders the page for `config`.
    pub fn new(config: &PageConfig) -> Self {
        let root = if IS_GRAPHIQL {
            include_str!("../page/src/index.html")
        } else {
            include_str!("../plain/index.html")
        };
        Self {
            root: Asset::rendered(HTML, template::render(root, config)),
            plain: Asset::rendered(
                HTML,
                template::render(include_str!("../plain/index.html"), config),
            ),
        }
    }

    /// The asset at `path`, an absolute path without query; `None` if the page has no such asset.
    pub fn asset(&self, path: &str) -> Option<Asset> {
        let asset = match path {
            "/" => self.root.clone(),
            "/ide/plain" => self.plain.clone(),
            "/ide/plain.js" => {
                Asset::embedded(JAVASCRIPT, include_bytes!("../plain/plain.js"), None)
            }
            "/ide/plain.css" => Asset::embedded(CSS, include_bytes!("../plain/plain.css"), None),
            "/ide/icon.svg" => Asset::embedded(SVG, include_bytes!("../icon.svg"), None),
            _ => return graphiql_asset(path),
        };
        Some(asset)
    }
}

#[cfg(graphiql)]
fn graphiql_asset(path: &str) -> Option<Asset> {
    macro_rules! product {
        ($name:literal) => {
            include_bytes!(concat!(env!("OUT_DIR"), "/bundle/", $name))
        };
    }
    Some(match path {
        "/ide/graphiql.js" => {
            Asset::embedded(JAVASCRIPT, product!("graphiql.js"), Some(product!("graphiql.js.gz")))
        }
        "/ide/graphiql.css" => {
            Asset::embedded(CSS, product!("graphiql.css"), Some(product!("graphiql.css.gz")))
        }
        "/ide/third-party.txt" => Asset::embedded(asset::TEXT, product!("third-party.txt"), None),
        _ => return None,
    })
}

#[cfg(not(graphiql))]
fn graphiql_asset(_path: &str) -> Option<Asset> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page::new(&PageConfig {
            title: "Starling".to_owned(),
            endpoint: "/graphql".to_owned(),
            tabs: vec![Tab { query: "{ __typename }".to_owned(), variables: None }],
        })
    }

    fn text(asset: &Asset) -> String {
        String::from_utf8(asset.encoded(None).bytes.to_vec()).unwrap()
    }

    #[test]
    fn every_asset_that_a_page_refers_to_is_served_from_the_same_origin() {
        for path in ["/", "/ide/plain"] {
            let html = text(&page().asset(path).unwrap());
            let mut count = 0;
            for attribute in ["src=\"", "href=\""] {
                for (start, _) in html.match_indices(attribute) {
                    let reference = html[start + attribute.len()..].split('"').next().unwrap();
                    assert!(page().asset(reference).is_some(), "{path} refers to {reference}");
                    count += 1;
                }
            }
            assert_eq!(count, 3, "icon, style sheet and script of {path}");
        }
    }

    #[test]
    fn a_path_outside_the_page_has_no_asset() {
        for path in ["", "/graphql", "/ide", "/ide/", "/ide/../secret", "/ide/graphiql.js.gz"] {
            assert_eq!(page().asset(path), None, "{path}");
        }
    }

    #[test]
    fn the_root_is_graphiql_exactly_in_a_build_that_has_it() {
        let html = text(&page().asset("/").unwrap());
        assert_eq!(html.contains("/ide/graphiql.js"), IS_GRAPHIQL);
        assert_eq!(page().asset("/ide/graphiql.js").is_some(), IS_GRAPHIQL);
    }

    #[test]
    fn a_different_configuration_has_a_different_entity_tag() {
        let other = Page::new(&PageConfig {
            title: "Starling".to_owned(),
            endpoint: "/api".to_owned(),
            tabs: vec![],
        });
        assert_ne!(page().asset("/").unwrap().etag(), other.asset("/").unwrap().etag());
        assert_eq!(page().asset("/").unwrap().etag(), page().asset("/").unwrap().etag());
    }
}
