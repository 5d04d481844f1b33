//! Descriptions: the one that most subgraphs give wins, the first of equals.

use apollo_compiler::Node;

use crate::{
    code::Code,
    finding::{Findings, Severity, Spot},
};

/// Returns the description of an element. `element` names it in a hint if subgraphs differ.
pub(super) fn merge<'t>(
    given: impl IntoIterator<Item = (Option<&'t Node<str>>, Spot)>,
    element: impl FnOnce() -> String,
    findings: &mut Findings<'_>,
) -> Option<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    let mut spots = Vec::new();
    for (description, spot) in given {
        let Some(text) = description.map(|it| it.trim()).filter(|it| !it.is_empty()) else {
            continue;
        };
        spots.push(spot);
        match counts.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counts.push((text, 1)),
        }
    }
    if counts.len() > 1 {
        findings.hint(
            Code::INCONSISTENT_DESCRIPTION,
            Severity::Warning,
            spots,
            format!("{} has different descriptions; the supergraph has the one that most subgraphs give", element()),
            "use the same description everywhere, or give it in one subgraph only",
        );
    }
    let most = counts.iter().map(|(_, count)| *count).max()?;
    counts.iter().find(|(_, count)| *count == most).map(|(text, _)| (*text).to_owned())
}
