//! The tables of `docs/migration.md`, made of the rules.

use std::fmt::Write as _;

use super::router::Router;
use super::rule::{Action, Rule};
use super::tables::rules;

/// Returns the table of the keys of a router, in Markdown.
pub fn table(router: Router) -> String {
    let mut page = format!("| {} | Starling | remark |\n|---|---|---|\n", router.name());
    for rule in rules(router).iter().copied().flatten() {
        let to = match (rule.to.is_empty(), rule.action) {
            (true, Action::Unneeded) => "not needed".to_owned(),
            (true, _) => "–".to_owned(),
            (false, _) => rule.to.split(", ").map(code).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(page, "| {} | {to} | {} |", code(rule.key), remark(rule));
    }
    page
}

fn remark(rule: &Rule) -> String {
    // A line break or a bar would end the cell.
    rule.note.replace('|', "\\|")
}

/// Bars divide cells, also in code.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}
