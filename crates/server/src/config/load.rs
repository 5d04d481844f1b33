//! From a file and command line flags to a [`Config`], or to everything that is wrong with them.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::Checked;
use super::environment::Environment;
use super::yaml::{Content, Node};
use super::{Config, Listener, Log, check, consistency, environment, schema, secrecy, yaml};
use crate::diagnostic::{Diagnostic, Severity, SourceText, Span};

/// A configuration file may be this large: a hundred times more than any that people write.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Messages that one run shows. More would hide the first ones.
const FINDINGS_MAX: usize = 50;

/// Characters of a message; the longest of our own list all keys of the top level.
const MESSAGE_CHARS_MAX: usize = 1000;

/// What command line flags say. They win over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: replaces every address of `listen`.
    pub listen: Option<SocketAddr>,
    /// `--admin-listen`: replaces `admin.listen`.
    pub admin_listen: Option<SocketAddr>,
    /// `--supergraph`: replaces `supergraph.file`; counts from the working directory.
    pub supergraph: Option<PathBuf>,
}

/// A configuration that is fit to run.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What holds, flags included. `supergraph.file` counts from the working directory.
    pub config: Config,
    /// What is probably not meant the way it is written.
    pub warnings: Vec<Diagnostic>,
    source: Option<Arc<SourceText>>,
    places: Places,
}

impl Loaded {
    /// Warnings about settings for subgraphs that the supergraph does not have. `names` are those
    /// it has. To be called whenever a graph is loaded.
    pub fn unknown_subgraphs<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Diagnostic> {
        let names: Vec<_> = names.into_iter().collect();
        let mut findings = Findings::default();
        consistency::subgraphs(&self.config, &names, &self.places, &mut findings);
        findings.into_diagnostics(self.source.as_ref())
    }
}

/// Reads, checks and completes the configuration. Without a path, only the flags and the defaults
/// hold.
///
/// # Errors
/// Everything that is wrong, in the order of the file, up to 50 messages. Warnings are among them.
pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Loaded, Vec<Diagnostic>> {
    let env = |name: &str| std::env::var_os(name);
    let Some(path) = path else {
        return parse("", "command line", Path::new(""), overrides, &env);
    };
    let text = read_file(path).map_err(|diagnostic| vec![*diagnostic])?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, &path.display().to_string(), folder, overrides, &env)
}

/// Reads `log` alone from a configuration that may be wrong elsewhere, for reporting what is wrong with it. `None` if the
/// file, or this part of it, cannot be read.
pub fn log_format(path: Option<&Path>) -> Option<Log> {
    let text = read_file(path?).ok()?;
    let root = yaml::read(&text, &mut Findings::default())?;
    let Content::Mapping(entries) = root.content else { return None };
    let log = entries.into_iter().find(|entry| entry.key == "log")?.value;
    let schema = schema::plain_schema();
    let Checked { value, .. } =
        check::check_part(&log, schema, &schema["properties"]["log"], &mut Findings::default());
    serde_json::from_value(value).ok()
}

/// As [`load`], for a text. `name` is what messages call it, `folder` is where relative paths in it
/// count from, `env` looks up environment variables.
///
/// # Errors
/// As [`load`].
pub fn parse(
    text: &str,
    name: &str,
    folder: &Path,
    overrides: &Overrides,
    env: Environment<'_>,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut findings = Findings::default();
    let mut root = yaml::read(text, &mut findings);
    let checked = match &mut root {
        Some(root) => {
            environment::expand(root, text, env, &mut findings);
            check::check(root, schema::plain_schema(), &mut findings)
        }
        None => Checked::default(),
    };
    let Checked { value, mut places } = checked;
    let config = match serde_json::from_value::<Config>(value) {
        Ok(config) => Some(config),
        // Something required is missing or broken, and `check` has said so.
        Err(_) if findings.has_errors() => None,
        Err(_) => {
            findings.error(
                "internal",
                "the configuration passed every check and still cannot be read; please report this",
            );
            None
        }
    };
    let config = config.map(|mut config| {
        config.supergraph.file = folder.join(&config.supergraph.file);
        config.listen.iter_mut().for_each(|listener| listener.resolve(folder));
        config.authentication.resolve(folder);
        for subgraph in config.subgraphs.values_mut() {
            subgraph.tls.resolve(folder);
        }
        for provider in &mut config.events.providers.nats {
            provider.tls.resolve(folder);
            provider.authentication.iter_mut().for_each(|it| it.resolve(folder));
        }
        for provider in &mut config.events.providers.redis {
            provider.tls.resolve(folder);
        }
        for provider in &mut config.events.providers.kafka {
            provider.resolve(folder);
        }
        apply(overrides, &mut config, &mut places);
        consistency::check(&config, &places, &mut findings);
        for provider in &mut config.events.providers.nats {
            provider.separate_credentials();
        }
        for provider in &mut config.events.providers.redis {
            provider.separate_credentials();
        }
        config
    });
    let failed = findings.has_errors();
    let source =
        Arc::new(SourceText { name: name.to_owned(), text: secrecy::mask(text, &findings.hidden) });
    let diagnostics = findings.into_diagnostics(Some(&source));
    match config {
        Some(config) if !failed => {
            Ok(Loaded { config, warnings: diagnostics, source: Some(source), places })
        }
        _ => Err(diagnostics),
    }
}

fn apply(overrides: &Overrides, config: &mut Config, places: &mut Places) {
    if let Some(address) = overrides.listen {
        config.listen = vec![Listener::plain(address)];
        places.forget("listen");
    }
    if let Some(address) = overrides.admin_listen {
        config.admin.listen = address;
        places.forget("admin.listen");
    }
    if let Some(file) = &overrides.supergraph {
        config.supergraph.file.clone_from(file);
        places.forget("supergraph.file");
    }
}

fn read_file(path: &Path) -> Result<String, Box<Diagnostic>> {
    let name = path.display();
    let unreadable = |error: std::io::Error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "check the path; to serve a graph with the default settings, give `--supergraph FILE` and no `--config`"
            }
            std::io::ErrorKind::PermissionDenied => "let the user that runs the router read it",
            _ => "check the path given by `--config`",
        };
        let message = format!("cannot read the configuration {name}: {error}");
        Box::new(Diagnostic::error("unreadable-file", message).help(help))
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, to see whether there is more.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the configuration {name} is larger than 4 MiB");
        return Err(Box::new(
            Diagnostic::error("too-large", message).help("is this the right file?"),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let message = format!("the configuration {name} is not UTF-8 text: see line {line}");
        Box::new(Diagnostic::error("unreadable-file", message).help("save it as UTF-8"))
    })
}

/// Where keys stand in the file, by their path (`traffic.all.timeout`, `events.providers.nats[0]`).
#[derive(Debug, Clone, Default)]
pub(super) struct Places(HashMap<String, Place>);

/// Where one key stands.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The key; for an element of a list, its beginning.
    pub(super) key: Range<usize>,
    /// The value.
    pub(super) value: Range<usize>,
}

impl Places {
    pub(super) fn insert(&mut self, path: &str, place: Place) {
        self.0.insert(path.to_owned(), place);
    }

    pub(super) fn get(&self, path: &str) -> Option<&Place> {
        self.0.get(path)
    }

    /// The file has no say about this key any more.
    fn forget(&mut self, path: &str) {
        self.0.retain(|known, _| {
            known.strip_prefix(path).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('['))
        });
    }
}

/// What one run has found so far, and what excerpts must not show.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    /// Takes what is found beyond the bound.
    overflow: Option<Finding>,
    overflowed: usize,
    hidden: Vec<Range<usize>>,
}

/// A diagnostic whose text is not known yet: it is masked only when all is found.
#[derive(Debug)]
pub(super) struct Finding {
    severity: Severity,
    code: &'static str,
    message: String,
    at: Option<Range<usize>>,
    label: String,
    related: Vec<(Range<usize>, String)>,
    help: Option<String>,
}

impl Findings {
    pub(super) fn error(&mut self, code: &'static str, message: impl Into<String>) -> &mut Finding {
        self.add(Severity::Error, code, message.into())
    }

    pub(super) fn warning(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.add(Severity::Warning, code, message.into())
    }

    pub(super) fn has_errors(&self) -> bool {
        self.overflowed > 0 || self.list.iter().any(|found| found.severity == Severity::Error)
    }

    /// Excerpts do not show these bytes.
    pub(super) fn hide(&mut self, range: Range<usize>) {
        self.hidden.push(range);
    }

    /// Excerpts do not show the secrets that likely stand in this value.
    pub(super) fn hide_if_likely_secret(&mut self, key: &str, node: &Node) {
        if secrecy::sounds_secret(key) {
            return self.hide_value(node);
        }
        match &node.content {
            Content::Mapping(entries) => {
                for entry in entries {
                    self.hide_if_likely_secret(&entry.key, &entry.value);
                }
            }
            Content::Sequence(items) => {
                items.iter().for_each(|item| self.hide_if_likely_secret("", item));
            }
            Content::Scalar(_) | Content::Broken => {}
        }
    }

    /// Excerpts do not show this value, nor what it contains.
    pub(super) fn hide_value(&mut self, node: &Node) {
        match &node.content {
            Content::Mapping(entries) => {
                for entry in entries {
                    self.hide_value(&entry.value);
                }
            }
            Content::Sequence(items) => items.iter().for_each(|item| self.hide_value(item)),
            Content::Scalar(_) | Content::Broken => self.hide(node.range.clone()),
        }
    }

    /// Excerpts do not show what sounds secret. For texts whose structure is not known.
    pub(super) fn hide_likely_secrets(&mut self, text: &str) {
        self.hidden.extend(secrecy::likely_secrets(text));
    }

    fn add(&mut self, severity: Severity, code: &'static str, message: String) -> &mut Finding {
        let finding = Finding {
            severity,
            code,
            message: one_line(message),
            at: None,
            label: String::new(),
            related: Vec::new(),
            help: None,
        };
        if self.list.len() >= FINDINGS_MAX {
            self.overflowed += 1;
            return self.overflow.insert(finding);
        }
        let index = self.list.len();
        self.list.push(finding);
        &mut self.list[index]
    }

    fn into_diagnostics(mut self, source: Option<&Arc<SourceText>>) -> Vec<Diagnostic> {
        // In the order of the file; what has no place comes last. The sort is stable.
        self.list.sort_by_key(|found| found.at.as_ref().map_or(usize::MAX, |range| range.start));
        let mut diagnostics: Vec<_> =
            self.list.into_iter().map(|found| found.into_diagnostic(source)).collect();
        if self.overflowed > 0 {
            diagnostics.push(Diagnostic::error(
                "too-many-errors",
                format!("{} more errors are not shown; mend the first ones", self.overflowed),
            ));
        }
        diagnostics
    }
}

impl Finding {
    pub(super) fn at(&mut self, range: Range<usize>, label: impl Into<String>) -> &mut Self {
        self.at = Some(range);
        self.label = one_line(label.into());
        self
    }

    pub(super) fn at_place(
        &mut self,
        place: Option<&Place>,
        label: impl Into<String>,
    ) -> &mut Self {
        match place {
            Some(place) => self.at(place.value.clone(), label),
            None => self,
        }
    }

    pub(super) fn related(&mut self, range: Range<usize>, label: impl Into<String>) -> &mut Self {
        self.related.push((range, label.into()));
        self
    }

    pub(super) fn related_place(
        &mut self,
        place: Option<&Place>,
        label: impl Into<String>,
    ) -> &mut Self {
        match place {
            Some(place) => self.related(place.value.clone(), label),
            None => self,
        }
    }

    pub(super) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(one_line(help.into()));
        self
    }

    fn into_diagnostic(self, source: Option<&Arc<SourceText>>) -> Diagnostic {
        let mut diagnostic = match self.severity {
            Severity::Error => Diagnostic::error(self.code, self.message),
            Severity::Warning => Diagnostic::warning(self.code, self.message),
        };
        diagnostic.help = self.help;
        let (Some(source), Some(at)) = (source, self.at) else {
            return diagnostic;
        };
        let span = |range| Span::of_bytes(&source.text, first_line(&source.text, range));
        diagnostic.related =
            self.related.into_iter().map(|(range, label)| (span(range), label)).collect();
        diagnostic.at(span(at), self.label).in_source(source)
    }
}

/// Keys of the file are part of messages: a long one does not fill the log, and one with line breaks
/// does not fake a line of it.
fn one_line(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, "\u{fffd}");
    }
    text
}

/// The part of a range that is on its first line: a place to point at, not an area.
fn first_line(text: &str, range: Range<usize>) -> Range<usize> {
    let inside = text.get(range.clone()).unwrap_or_default();
    let line = inside.lines().next().unwrap_or_default().trim_end();
    range.start..range.start + line.len()
}
