//! Fills the placeholders of the HTML files. Values are escaped for their position, and placeholders inside values are
//! not expanded.

use crate::page_config::PageConfig;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns `template` with `{{title}}`, `{{endpoint}}`, `{{config}}` and `{{tabs_id}}` filled in from `config`. Any
/// other text in double braces stays.
pub(crate) fn render(template: &str, config: &PageConfig) -> String {
    let mut html = String::with_capacity(template.len() + 1024);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        html.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        match name {
            "title" => escape_html(&config.title, &mut html),
            "endpoint" => escape_html(&config.endpoint, &mut html),
            "config" => html.push_str(&script_json(config)),
            "tabs_id" => html.push_str(&tabs_id(config)),
            _ => html.extend(["{{", name, "}}"]),
        }
        rest = after;
    }
    html.push_str(rest);
    html
}

fn escape_html(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
}

/// Returns JSON that is safe inside a `script` element: without `<`, nothing in it ends the element or opens a comment
/// (HTML, section 4.12.1.3).
fn script_json(config: &PageConfig) -> String {
    let json = serde_json::to_string(config).unwrap_or_else(|error| {
        // Strings and lists of strings always print.
        unreachable!("a page configuration is plain data: {error}")
    });
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Returns the key of this set of tabs in the browser's storage, so that other sets are stored separately.
fn tabs_id(config: &PageConfig) -> String {
    let mut hasher = DefaultHasher::new();
    for tab in &config.tabs {
        tab.query.hash(&mut hasher);
        tab.variables.hash(&mut hasher);
    }
    config.endpoint.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_config::Tab;

    fn config(title: &str, query: &str) -> PageConfig {
        PageConfig {
            title: title.to_owned(),
            endpoint: "/graphql".to_owned(),
            tabs: vec![Tab { query: query.to_owned(), variables: Some("{}".to_owned()) }],
        }
    }

    #[test]
    fn text_is_escaped_for_html_and_json_for_a_script_element() {
        let html = render(
            "<title>{{title}}</title><script>{{config}}</script>",
            &config("a<b> & \"c\"", "# </script><!-- &"),
        );
        assert_eq!(
            html,
            "<title>a&lt;b&gt; &amp; &quot;c&quot;</title><script>{\
             \"title\":\"a\\u003cb\\u003e \\u0026 \\\"c\\\"\",\"endpoint\":\"/graphql\",\"tabs\":[\
             {\"query\":\"# \\u003c/script\\u003e\\u003c!-- \\u0026\",\"variables\":\"{}\"}]}\
             </script>"
        );
    }

    #[test]
    fn the_json_on_the_page_reads_back_as_the_configuration() {
        let given = config("Flights", "query { a(b: \"</script>\\u{2028}\") { c } }");
        let read: serde_json::Value = serde_json::from_str(&script_json(&given)).unwrap();
        assert_eq!(read, serde_json::to_value(&given).unwrap());
    }

    #[test]
    fn a_placeholder_in_a_value_is_not_filled() {
        let html = render("{{title}} {{unknown}} {{endpoint}}", &config("{{endpoint}}", "{ a }"));
        assert_eq!(html, "{{endpoint}} {{unknown}} /graphql");
    }

    #[test]
    fn other_tabs_have_another_name_in_storage() {
        let id = |query| tabs_id(&config("t", query));
        assert_eq!(id("{ a }"), id("{ a }"));
        assert_ne!(id("{ a }"), id("{ b }"));
    }
}
