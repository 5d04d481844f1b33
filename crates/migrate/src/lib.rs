//! Migrations: the configuration of another router becomes that of Starling, with a finding for each of its keys.
//!
//! Pure functions: text in, text and findings out. `walk` goes over the keys of the source, looks for the rule of each
//! in the tables of its router (`apollo`, `cosmo`, `hive`), and applies it. `acceptance` removes what the checks of the
//! configuration refuse, so that the result always passes them; in place of restrictions it puts their strictest form.
//! A key without a rule is reported and never dropped in silence.
//!
//! To add a key, add a rule to a table: `docs/migration.md` shows the tables, and a test compares them.
//!
//! Not in this crate: files and the command line.

mod acceptance;
mod apollo;
mod authorization;
mod aws;
mod conversion;
mod cosmo;
mod cost;
mod expression;
mod finding;
mod form;
mod headers;
mod hive;
mod listener_tls;
mod origins;
mod otlp;
mod page;
mod quantity;
mod redis;
mod restriction;
mod router;
mod rule;
mod setting;
mod tables;
mod target;
mod tokens;
mod variables;
mod walk;

use config::diagnostic::Diagnostic;

pub use finding::{Finding, Outcome, summary};
pub use page::table;
pub use router::Router;

use conversion::Conversion;
use setting::Lines;

/// The result of a migration.
#[derive(Debug)]
pub struct Migration {
    /// The configuration of Starling, with comments where something needs attention.
    pub yaml: String,
    /// The result for each key, in the order of the source.
    pub findings: Vec<Finding>,
}

/// Converts a configuration. `name` is the name of its file in messages.
///
/// # Errors
/// The text is not YAML, or its top level is not a mapping; or it has a restriction that cannot be kept in any form.
pub fn migrate(router: Router, text: &str, name: &str) -> Result<Migration, Vec<Diagnostic>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let empty = config::SourceNode { range: 0..0, content: config::Content::Mapping(Vec::new()) };
    let root = config::parse_tree(text, name)?.filter(|root| !root.is_null()).unwrap_or(empty);
    if !matches!(root.content, config::Content::Mapping(_)) {
        let message = format!("{name} is no configuration of {}", router.name());
        let help = "its first line should be a key, such as `supergraph:`";
        return Err(vec![Diagnostic::error("wrong-type", message).help(help)]);
    }
    let lines = Lines::of(text);
    let mut conversion = Conversion::new(router, &root, &lines);
    walk::convert(&mut conversion, &rule::patterns(tables::rules(router)));
    tables::add_defaults(&mut conversion);
    let Conversion { mut target, mut findings, lost_issuer, .. } = conversion;
    acceptance::remove_refused(&mut target, &mut findings, lost_issuer)?;
    let schema = config::config_schema();
    let sections = schema["properties"].as_object();
    let sections: Vec<_> = sections.into_iter().flatten().map(|(key, _)| key.clone()).collect();
    target.sort(&sections);
    findings.sort_by_key(|it| it.line.unwrap_or(usize::MAX));
    // A key that became several parts is reported once.
    findings.dedup();
    let mut head = vec![format!("Migrated from {name}, a configuration of {}.", router.name())];
    head.extend(target::wrap(
        "`starling check` reports mistakes; docs/migration.md describes what differs. Comments name \
         what needs attention.",
        0,
    ));
    let mut yaml = target.render(&head, None).text;
    append_open_findings(&mut yaml, &findings);
    Ok(Migration { yaml, findings })
}

/// Adds a comment that lists what was not converted.
fn append_open_findings(yaml: &mut String, findings: &[Finding]) {
    let open =
        findings.iter().filter(|it| matches!(it.outcome, Outcome::NotConverted | Outcome::Unknown));
    let mut is_first = true;
    for finding in open {
        if std::mem::take(&mut is_first) {
            yaml.push_str("\n# Not converted, by the lines of the source:\n#\n");
        }
        for (index, line) in target::wrap(&finding.to_string(), 2).iter().enumerate() {
            yaml.push_str(if index == 0 { "# " } else { "#   " });
            yaml.push_str(line);
            yaml.push('\n');
        }
    }
}
