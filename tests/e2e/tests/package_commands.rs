//! The commands that packages and container images use: completions, man pages, health checks, the example of the
//! configuration, and the version.

#![allow(clippy::unwrap_used)] // A test without its expected value has failed.

use e2e::router::{Router, run};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// A supergraph that loads.
const SUPERGRAPH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/federation-benchmark/supergraph.graphql");

/// Commands that a user must find by completion and in a man page.
const COMMANDS: [&str; 6] = ["serve", "check", "compose", "healthcheck", "config-schema", "demo"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_version_names_commit_date_and_licence() {
    let (code, version, complaint) = run(["--version"]);
    assert_eq!(code, Some(0), "{complaint}");
    let value = |name: &str| {
        let line = version.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name}: {version}")).to_owned()
    };
    assert!(
        version.starts_with(concat!("starling ", env!("CARGO_PKG_VERSION"), "\n")),
        "{version}"
    );
    assert_eq!(value("licence"), "MIT OR Apache-2.0");
    let commit = value("commit");
    let is_commit = commit.chars().take(12).all(|it| it.is_ascii_hexdigit());
    assert!(commit == "unknown" || is_commit, "{commit}");
    let built = value("built");
    let is_date = built.len() == "2026-11-27".len() && built.matches('-').count() == 2;
    assert!(built == "unknown" || is_date, "{built}");
    // The short form is one line, for scripts.
    assert_eq!(run(["-V"]).1, concat!("starling ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn completions_of_every_shell_know_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, script, complaint) = run(["completions", shell]);
        assert_eq!(code, Some(0), "{shell}: {complaint}");
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not complete {command}");
        }
    }
    let (code, _, complaint) = run(["completions", "tcsh"]);
    assert_eq!(code, Some(2));
    assert!(complaint.contains("possible values: bash, elvish, fish"), "{complaint}");
}

#[cfg(target_os = "linux")]
#[test]
fn bash_completes_a_command_and_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("starling");
    fs::write(&script, run(["completions", "bash"]).1).unwrap();
    for (line, expected) in
        [("starling heal", "healthcheck"), ("starling healthcheck --ti", "--timeout")]
    {
        let program = format!(
            ". {}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _starling starling \"${{COMP_WORDS[COMP_CWORD]}}\" starling; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &program]).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{complaint}");
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, complaint) = run(["man", "--output", text(folder.path())]);
    assert_eq!(code, Some(0), "{complaint}");
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let start = page("starling.1");
    for command in COMMANDS {
        let reference = command.replace('-', "\\-");
        assert!(start.contains(&reference), "starling.1 does not name {command}");
        assert!(page(&format!("starling-{command}.1")).starts_with(".ie"), "{command}");
    }
    assert!(page("starling-config-init.1").contains("force"));
    assert!(!start.contains("commit:"), "a page must be the same for every build of a version");

    let (code, _, complaint) = run(["man", "--output", text(&folder.path().join("none"))]);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("cannot write man pages"), "{complaint}");
}

#[test]
fn the_health_of_a_running_router_is_success() {
    let router = Router::start(["serve", "--supergraph", SUPERGRAPH]);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("starling.yaml");
    // The rest of the file does not matter: a router that runs has read an earlier one.
    let content = format!("admin: {{listen: \"0.0.0.0:{}\"}}\nlimits: 7\n", router.admin().port());
    fs::write(&config, content).unwrap();
    let url = format!("http://{}/health/live", router.admin());
    for (words, expected) in [
        (vec!["--config", text(&config)], "ready\n"),
        (vec!["--config", text(&config), "--check", "live"], "live\n"),
        (vec!["--url", &url], "live\n"),
    ] {
        let (code, out, complaint) = run(["healthcheck"].iter().chain(&words));
        assert_eq!((code, out.as_str(), complaint.as_str()), (Some(0), expected, ""), "{words:?}");
    }
    assert_eq!(router.interrupt(), Some(0));
    let (code, out, complaint) = run(["healthcheck", "--url", &url]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(complaint.contains("connection failed"), "{complaint}");
}

#[test]
fn anything_but_a_healthy_router_fails_with_the_reason() {
    let router = Router::start(["serve", "--supergraph", SUPERGRAPH]);
    // Accepts connections in the kernel and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}/", silent.local_addr().unwrap());
    let wrong_path = format!("http://{}/health", router.admin());
    for (words, code, part) in [
        (vec!["--url", &silent, "--timeout", "50ms"], 1, "no response within 50ms"),
        (vec!["--url", &wrong_path], 1, "HTTP status 404"),
        (vec!["--url", "127.0.0.1:8088"], 1, "127.0.0.1:8088"),
        (vec!["--config", "/no/such/file.yaml"], 1, "cannot read the configuration"),
        (vec!["--config", "a.yaml", "--url", "http://a/"], 2, "cannot be used with"),
        (vec!["--timeout", "soon"], 2, "is not a time"),
    ] {
        let (actual, out, complaint) = run(["healthcheck"].iter().chain(&words));
        assert_eq!((actual, out.as_str()), (Some(code), ""), "{words:?}: {complaint}");
        assert!(complaint.contains(part), "{words:?}: {complaint}");
    }
    assert_eq!(router.interrupt(), Some(0));
}

#[test]
fn the_example_of_the_configuration_is_written_once_and_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("starling.yaml");
    let init = ["config", "init", "--output", text(&config)];
    let (code, out, complaint) = run(init);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(out.contains("starling check --config"), "{out}");
    fs::copy(SUPERGRAPH, folder.path().join("supergraph.graphql")).unwrap();
    let (code, out, complaint) = run(["check", "--config", text(&config)]);
    assert_eq!((code, out.as_str()), (Some(0), "Everything is in order.\n"), "{complaint}");

    fs::write(&config, "listen: 127.0.0.1:1\n").unwrap();
    let (code, _, complaint) = run(init);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("--force"), "{complaint}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "listen: 127.0.0.1:1\n");

    assert_eq!(run(init.iter().chain(&["--force", "--all"])).0, Some(0));
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/starling.yaml");
    let example = fs::read_to_string(example).unwrap();
    assert_eq!(fs::read_to_string(&config).unwrap(), example);
    let (code, printed, _) = run(["config", "init", "--all", "--output", "-"]);
    assert_eq!((code, printed), (Some(0), example));
}
