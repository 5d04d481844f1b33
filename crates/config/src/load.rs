//! Loading of a configuration: from a file and command line flags to a [`Config`], or to the list of all mistakes.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::build_features::BuildFeatures;
use super::check::Checked;
use super::environment::Environment;
use super::findings::{Findings, KeyPlaces};
use super::source_tree::{Content, SourceNode};
use super::{
    Admin, Config, GraphSettings, Listener, Log, build_features, check, consistency, environment,
    graphs, schema, secrecy, subgraph_subscription_consistency, yaml,
};
use crate::diagnostic::{Diagnostic, SourceText};

/// The maximum size of a configuration file, a hundred times more than any file written by hand.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Values of command line flags. They take precedence over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`: replaces every address of `listen`.
    pub listen: Option<SocketAddr>,
    /// `--admin-listen`: replaces `admin.listen`.
    pub admin_listen: Option<SocketAddr>,
    /// `--supergraph`: replaces `supergraph.file`, `supergraph.url`, `supergraph.compose` and `supergraph.directory`;
    /// relative to the working directory.
    pub supergraph: Option<PathBuf>,
}

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The settings, with flags applied. Paths are relative to the working directory.
    pub config: Config,
    /// Settings that are probably mistakes.
    pub warnings: Vec<Diagnostic>,
    source: Option<Arc<SourceText>>,
    places: KeyPlaces,
}

impl LoadedConfig {
    /// The places of the keys in the file.
    pub(super) fn key_places(&self) -> &KeyPlaces {
        &self.places
    }

    /// The text of the file, if there is one.
    pub(super) fn source_text(&self) -> Option<&Arc<SourceText>> {
        self.source.as_ref()
    }

    /// Returns warnings about settings for subgraphs that are not in the supergraph. `names` are the subgraphs of the
    /// supergraph. Must be called whenever a graph is loaded.
    pub fn unknown_subgraphs<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Diagnostic> {
        let names: Vec<_> = names.into_iter().collect();
        let mut findings = Findings::default();
        consistency::check_subgraph_names(&self.config, &names, &self.places, &mut findings);
        findings.into_diagnostics(self.source.as_ref())
    }

    /// Returns the configuration of a further graph, see [`Config::of_graph`].
    #[must_use]
    pub fn of_graph(&self, graph: &GraphSettings) -> Self {
        Self { config: self.config.of_graph(graph), warnings: Vec::new(), ..self.clone() }
    }

    /// Returns a warning about `subscriptions.callback`, if it is set. Must be called for a graph of which no subgraph
    /// sends events by callbacks.
    pub fn unused_callback(&self) -> Vec<Diagnostic> {
        let mut findings = Findings::default();
        subgraph_subscription_consistency::check_unused_callback(
            &self.config,
            &self.places,
            &mut findings,
        );
        findings.into_diagnostics(self.source.as_ref())
    }
}

/// Reads, checks and completes the configuration. Without a path, only the flags and the defaults apply.
///
/// # Errors
/// Returns all mistakes, in the order of the file, up to 50 messages. Warnings are among them.
pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<LoadedConfig, Vec<Diagnostic>> {
    let env = |name: &str| std::env::var_os(name);
    let Some(path) = path else {
        return parse("", "command line", Path::new(""), overrides, &env);
    };
    let text = read_file(path).map_err(|diagnostic| vec![*diagnostic])?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, &path.display().to_string(), folder, overrides, &env)
}

/// Reads only `log` from a configuration that may be invalid elsewhere, so that its mistakes are reported in the format
/// of the log. `None` if the file, or this part of it, cannot be read.
pub fn log_settings(path: Option<&Path>) -> Option<Log> {
    let text = read_file(path?).ok()?;
    let root = yaml::read(&text, &mut Findings::default())?;
    let Content::Mapping(entries) = root.content else { return None };
    let mut log = entries.into_iter().find(|entry| entry.key == "log")?.value;
    let env = |name: &str| std::env::var_os(name);
    environment::expand(&mut log, &text, &env, &mut Findings::default());
    let schema = schema::plain_schema();
    let part = &schema["properties"]["log"];
    let checked = check::check_part(&log, schema, part, &mut Findings::default());
    serde_json::from_value(checked.value).ok()
}

/// Reads only `admin` from a configuration that may be invalid elsewhere: a running router keeps its admin listener,
/// whatever happens to the file.
///
/// # Errors
/// The file cannot be read, is no YAML, or the section is invalid.
pub fn admin_settings(path: &Path) -> Result<Admin, Vec<Diagnostic>> {
    let env = |name: &str| std::env::var_os(name);
    let text = read_file(path).map_err(|diagnostic| vec![*diagnostic])?;
    let mut findings = Findings::default();
    let admin = match yaml::read(&text, &mut findings) {
        Some(root) => parse_admin(root, &text, &env, &mut findings),
        // An empty file, or one that is no YAML, which is among the findings.
        None => Some(Admin::default()),
    };
    match admin {
        Some(admin) if !findings.has_errors() => Ok(admin),
        _ => {
            let text = secrecy::mask(&text, &findings.hidden);
            let source = Arc::new(SourceText { name: path.display().to_string(), text });
            Err(findings.into_diagnostics(Some(&source)))
        }
    }
}

/// Returns the section `admin` of a configuration. `None` if it is invalid, which is among the findings.
fn parse_admin(
    root: SourceNode,
    text: &str,
    env: Environment<'_>,
    findings: &mut Findings,
) -> Option<Admin> {
    // A file without keys, which `serve` reports.
    let Content::Mapping(entries) = root.content else { return Some(Admin::default()) };
    let Some(entry) = entries.into_iter().find(|entry| entry.key == "admin") else {
        return Some(Admin::default());
    };
    let mut admin = entry.value;
    environment::expand(&mut admin, text, env, findings);
    let schema = schema::plain_schema();
    let checked = check::check_part(&admin, schema, &schema["properties"]["admin"], findings);
    serde_json::from_value(checked.value).ok()
}

/// Loads a configuration as [`load`] does, but from a text. `name` is the name of the file in messages, `folder` is the
/// base of relative paths, `env` looks up environment variables.
///
/// # Errors
/// The same as for [`load`].
pub fn parse(
    text: &str,
    name: &str,
    folder: &Path,
    overrides: &Overrides,
    env: Environment<'_>,
) -> Result<LoadedConfig, Vec<Diagnostic>> {
    parse_for_build(text, name, folder, overrides, env, BuildFeatures::THIS_BUILD)
}

/// Loads a configuration as [`parse`] does, for a build with these features.
pub(super) fn parse_for_build(
    text: &str,
    name: &str,
    folder: &Path,
    overrides: &Overrides,
    env: Environment<'_>,
    features: BuildFeatures,
) -> Result<LoadedConfig, Vec<Diagnostic>> {
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
        // A required key is missing or invalid, and `check` has reported it.
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
        config.supergraph.resolve(folder);
        graphs::resolve(&mut config.graphs, folder);
        config.listen.iter_mut().for_each(|listener| listener.resolve(folder));
        config.admin.resolve(folder);
        config.authentication.resolve(folder);
        config.authorization.policies.resolve(folder);
        config.persisted_documents.resolve(folder);
        config.warming.resolve(folder);
        config.storage_providers.resolve(folder);
        config.access_log.resolve(folder);
        config.tracing.resolve(folder);
        config.metrics.otlp.resolve(folder);
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
        build_features::check(&config, features, &places, &mut findings);
        for provider in &mut config.events.providers.nats {
            provider.separate_credentials();
        }
        for provider in &mut config.events.providers.redis {
            provider.separate_credentials();
        }
        config.storage_providers.separate_credentials();
        config
    });
    let failed = findings.has_errors();
    let source =
        Arc::new(SourceText { name: name.to_owned(), text: secrecy::mask(text, &findings.hidden) });
    let diagnostics = findings.into_diagnostics(Some(&source));
    match config {
        Some(config) if !failed => {
            Ok(LoadedConfig { config, warnings: diagnostics, source: Some(source), places })
        }
        _ => Err(diagnostics),
    }
}

fn apply(overrides: &Overrides, config: &mut Config, places: &mut KeyPlaces) {
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
        config.supergraph.compose = None;
        config.supergraph.directory = None;
        config.supergraph.url = None;
        places.forget("supergraph.file");
        places.forget("supergraph.url");
        places.forget("supergraph.compose");
        places.forget("supergraph.directory");
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
    // One byte more than allowed, to detect that the file is larger.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("the configuration {name} is larger than 4 MiB");
        return Err(Box::new(
            Diagnostic::error("too-large", message)
                .help("check that `--config` names the right file"),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let message = format!("the configuration {name} is not UTF-8 text: see line {line}");
        Box::new(Diagnostic::error("unreadable-file", message).help("save it as UTF-8"))
    })
}
