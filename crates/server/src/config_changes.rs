//! Detection of changes of the configuration file while the router runs. The file is read at the start only; SIGHUP,
//! which reloads the supergraph, logs whether the file still equals the running configuration.

use std::path::PathBuf;

use config::diagnostic;
use config::{Config, Overrides};

/// The source of the running configuration.
#[derive(Debug)]
pub struct ConfigSource {
    /// The file; `None` if only flags and defaults apply.
    pub path: Option<PathBuf>,
    /// Flags of the command line.
    pub overrides: Overrides,
    /// The running configuration.
    pub current: Config,
}

/// Logs at each SIGHUP whether the configuration file has changed. Never returns; it may be dropped at any time.
#[cfg(unix)]
pub async fn report_config_changes(source: ConfigSource) {
    use tokio::signal::unix::{SignalKind, signal};
    if source.path.is_none() {
        return;
    }
    let Ok(mut hang_ups) = signal(SignalKind::hangup()) else { return };
    while hang_ups.recv().await.is_some() {
        compare_with_file(&source);
    }
}

/// Does nothing: this system has no SIGHUP.
#[cfg(not(unix))]
pub async fn report_config_changes(_: ConfigSource) {}

fn compare_with_file(source: &ConfigSource) -> Comparison {
    let file = source.path.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    match config::load(source.path.as_deref(), &source.overrides) {
        Ok(loaded) if loaded.config == source.current => Comparison::Equal,
        Ok(_) => {
            tracing::warn!(
                file,
                "the configuration file differs from the running configuration and is not reloaded: SIGHUP reloads the \
                 supergraph only; restart the router to use the new settings"
            );
            Comparison::Changed
        }
        Err(diagnostics) => {
            tracing::error!(
                file,
                "the configuration file is invalid, and the router would not start with it; the running configuration stays in use"
            );
            diagnostic::log(&diagnostics);
            Comparison::Wrong
        }
    }
}

/// The result of comparing the file with the running configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    Changed,
    Wrong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_file_that_changed_or_broke_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starling.yaml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("limits: {depth: 7}");
        let overrides = Overrides::default();
        let current = config::load(Some(&path), &overrides).unwrap().config;
        let source = ConfigSource { path: Some(path.clone()), overrides, current };
        assert_eq!(compare_with_file(&source), Comparison::Equal);
        write("# only a comment\nlimits: {depth: 7}");
        assert_eq!(compare_with_file(&source), Comparison::Equal);
        write("limits: {depth: 8}");
        assert_eq!(compare_with_file(&source), Comparison::Changed);
        write("limits: {deepth: 8}");
        assert_eq!(compare_with_file(&source), Comparison::Wrong);
    }
}
