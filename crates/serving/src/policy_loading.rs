//! Creates the decider of policies (`authorization.policies`), with the files of rules that it needs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::Config;
use config::diagnostic::{Diagnostic, SourceText, Span};
use policies::{
    DecisionPointSettings, EngineSettings, InputSettings, PolicyDecider, PolicySettings,
    RegoDefect, RegoFile, RegoSettings, UnusablePolicies,
};
use upstream::resource_tls;

/// The maximum size of a file with rules or data. The interpreter takes no larger file with rules.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Creates the decider of policies, and reads the files of Rego rules. `None` if nothing is configured. Connects to
/// nothing. Blocks.
///
/// # Errors
/// Files that cannot be read, all mistakes in expressions, the first one in rules, and a decision point that cannot be
/// used.
pub fn load_policies(config: &Config) -> Result<Option<PolicyDecider>, Vec<Diagnostic>> {
    let policies = &config.authorization.policies;
    if !policies.is_configured() {
        return Ok(None);
    }
    let mut sources = Vec::new();
    let engine = match (&policies.decision_point, &policies.rego) {
        (Some(point), _) => Some(decision_point(point, input(policies))?),
        (None, Some(rego)) => Some(rego_rules(rego, input(policies), &mut sources)?),
        (None, None) => None,
    };
    let expressions = policies.expressions.iter();
    let expressions = expressions.map(|(name, it)| (name.as_str().into(), it.text().into()));
    let settings = PolicySettings { expressions: expressions.collect(), engine };
    let decider = PolicyDecider::new(&settings);
    let described = |problems: Vec<UnusablePolicies>| {
        problems.into_iter().map(|problem| diagnostic(problem, &sources)).collect::<Vec<_>>()
    };
    decider.map(Some).map_err(described)
}

fn input(policies: &config::Policies) -> InputSettings {
    let input = &policies.input;
    InputSettings {
        claims: input.claims(),
        headers: input.headers.clone(),
        has_operation: input.operation,
    }
}

fn decision_point(
    point: &config::DecisionPoint,
    input: InputSettings,
) -> Result<EngineSettings, Vec<Diagnostic>> {
    let tls = resource_tls(&point.url, point.ca.as_deref()).map_err(|reason| {
        let message = format!("`authorization.policies.decision_point`: {reason}");
        vec![Diagnostic::error("policies", message)]
    })?;
    let headers = point.headers.iter().map(|it| (it.name.clone(), it.value.clone()));
    Ok(EngineSettings::DecisionPoint(Box::new(DecisionPointSettings {
        url: point.url.as_str().into(),
        tls,
        headers: headers.collect(),
        input,
        timeout: point.timeout,
        response_bytes_max: point.max_size,
        concurrency_max: point.max_concurrent as usize,
        ttl: point.cache.ttl,
        cache_entries_max: point.cache.entries,
    })))
}

/// Reads the files of the rules, and adds their texts to `sources`.
fn rego_rules(
    rego: &config::Rego,
    input: InputSettings,
    sources: &mut Vec<Arc<SourceText>>,
) -> Result<EngineSettings, Vec<Diagnostic>> {
    let mut problems = Vec::new();
    let mut read = |path: &PathBuf| match read_text(path) {
        Ok(text) => {
            let name = path.display().to_string();
            let file = RegoFile { name: name.as_str().into(), text: text.as_str().into() };
            sources.push(Arc::new(SourceText { name, text }));
            Some(file)
        }
        Err(reason) => {
            let message = format!("`authorization.policies.rego`: {}: {reason}", path.display());
            problems.push(Diagnostic::error("unreadable-file", message));
            None
        }
    };
    let modules = rego.files.iter().filter_map(&mut read).collect();
    let data = rego.data.iter().filter_map(&mut read).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(EngineSettings::Rego(RegoSettings {
        modules,
        data,
        query: rego.query.as_str().into(),
        input,
        timeout: rego.timeout,
    }))
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    // One byte more than allowed, to detect that the file is larger.
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err("it is larger than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

fn diagnostic(problem: UnusablePolicies, sources: &[Arc<SourceText>]) -> Diagnostic {
    match problem {
        UnusablePolicies::Rego(RegoDefect { message, file, place }) => {
            let message = format!("`authorization.policies.rego`: {message}");
            let diagnostic = Diagnostic::error("rego", message);
            let source = sources.iter().find(|it| Some(&*it.name) == file.as_deref());
            let Some(source) = source else { return diagnostic };
            let diagnostic = diagnostic.in_source(source);
            match place {
                Some((line, column)) => diagnostic
                    .at(Span::of_line_column(&source.text, line as usize, column as usize), ""),
                None => diagnostic,
            }
        }
        // The configuration has been checked, so expressions have no mistakes.
        other => Diagnostic::error("policies", format!("`authorization.policies`: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use config::diagnostic::{Style, render};
    use config::{DecisionPoint, Overrides};

    use super::*;

    /// Loads the policies of a configuration in a folder with this file of rules.
    fn load(policies: &str, rules: &str) -> Result<Option<PolicyDecider>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.rego"), rules).expect("a file");
        let text = format!("authorization:\n  policies: {policies}\n");
        let none = |_: &str| None;
        let loaded =
            config::parse(&text, "starling.yaml", folder.path(), &Overrides::default(), &none);
        let config = loaded.map_err(|it| render(&it, Style::Plain))?.config;
        load_policies(&config).map_err(|problems| {
            let place = folder.path().display().to_string();
            render(&problems, Style::Plain).replace(&place, "HERE")
        })
    }

    #[test]
    fn nothing_is_created_without_policies() {
        assert!(load("{}", "").expect("no mistake").is_none());
        let decider = load("{expressions: {a: 'claims.x == 1'}}", "").expect("no mistake");
        let decider = decider.expect("a decider");
        assert!(decider.has_policy("a") && !decider.has_policy("b"));
        assert_eq!(decider.claims().len(), 1);
    }

    #[test]
    fn a_decision_point_gets_the_listed_facts_with_the_settings_of_the_file() {
        let point = "{input: {claims: [sub], headers: [x-a], operation: true}, \
                     decision_point: {url: 'http://127.0.0.1:1/v1/data/a'}}";
        let decider = load(point, "").expect("no mistake").expect("a decider");
        assert!(decider.decision_point().is_some() && decider.has_policy("any"));
        assert!(decider.reads_operation() && decider.reads_client());
        assert_eq!((decider.claims().len(), decider.headers().len()), (1, 1));
        let ca = "{decision_point: {url: 'https://127.0.0.1:1/', ca: none.pem}}";
        let text = load(ca, "").expect_err("no such file");
        assert!(
            text.contains("`authorization.policies.decision_point`: ca HERE/none.pem: No such"),
            "{text}"
        );
    }

    #[test]
    fn a_mistake_in_rules_is_shown_with_its_line() {
        let rego = "{rego: {files: [rules.rego], query: data.starling.allow}}";
        let rules = "package starling\nallow contains p if p == nothing\n";
        let text = load(rego, rules).expect_err("a mistake");
        assert!(text.contains("--> HERE/rules.rego:2:"), "{text}");
        assert!(text.contains("2 | allow contains p if p == nothing"), "{text}");
        let missing = "{rego: {files: [none.rego], query: data.starling.allow}}";
        let text = load(missing, "").expect_err("no such file");
        assert!(text.contains("HERE/none.rego: No such file"), "{text}");
        let decider = load(rego, "package starling\nallow contains \"a\"\n").expect("no mistake");
        assert!(decider.expect("a decider").rego().is_some());
    }

    #[test]
    fn the_defaults_of_the_file_are_those_of_the_decision_point() {
        let text = "authorization: {policies: {decision_point: {url: 'http://127.0.0.1:1/'}}}";
        let none = |_: &str| None;
        let loaded = config::parse(text, "a", Path::new(""), &Overrides::default(), &none);
        let config = loaded.expect("a valid file").config;
        let point: &DecisionPoint =
            config.authorization.policies.decision_point.as_ref().expect("a decision point");
        let EngineSettings::DecisionPoint(made) =
            decision_point(point, InputSettings::default()).expect("usable settings")
        else {
            panic!("not a decision point");
        };
        let defaults = DecisionPointSettings::new("http://127.0.0.1:1/");
        let figures = |it: &DecisionPointSettings| {
            (it.timeout, it.response_bytes_max, it.concurrency_max, it.ttl, it.cache_entries_max)
        };
        assert_eq!(figures(&made), figures(&defaults));
    }
}
