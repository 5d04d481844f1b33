//! HTTP/2 conformance: runs h2spec, 145 cases of RFC 7540 and RFC 7541, against the router.
//!
//! h2spec is a program in Go. It is fetched through the Go module proxy into the target folder and kept there; without
//! Go the run is skipped with a message.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use test_kit::builds::{Build, build_programs};
use test_kit::commands::{self, Failure};
use test_kit::free_addresses;

/// The package and version of h2spec, as `go install` expects them.
const GO_PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// The environment variable with the path of an installed h2spec.
const PROGRAM_VARIABLE: &str = "STARLING_H2SPEC";

/// The last line of every successful run.
const ALL_PASSED: &str = "145 tests, 145 passed, 0 skipped, 0 failed";

/// The path of a query that needs no subgraph.
const TARGET: &str = "/graphql?query=%7B__typename%7D";

/// The deadline for the router to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs h2spec over TLS and over plain TCP.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let [binary] = build_programs(root, Build::Debug, ["starling"])?;
    let folder = binary.with_file_name("h2spec");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let Some(h2spec) = find_program(&folder)? else {
        println!(
            "skipped: h2spec: Go is not installed, and {PROGRAM_VARIABLE} does not name the program"
        );
        return Ok(());
    };
    let [plain, tls, admin] =
        free_addresses().map_err(|error| format!("no free port on 127.0.0.1: {error}"))?;
    let router = RouterProcess::start(root, &binary, &folder, [plain, tls, admin])?;
    let mut lines = Vec::new();
    run_cases(&h2spec, tls, &["--tls", "--insecure"], &mut lines)?;
    if !lines.iter().any(|line| line == ALL_PASSED) {
        return Err("h2spec reported failures over TLS".to_owned());
    }
    lines.clear();
    run_cases(&h2spec, plain, &[], &mut lines)?;
    drop(router);
    if !lines.iter().any(|line| line == ALL_PASSED) {
        return Err("h2spec reported failures without TLS".to_owned());
    }
    println!("\nh2spec: 145 of 145, over TLS and without");
    Ok(())
}

/// Returns the path of h2spec, which is fetched if necessary. `None` if Go is missing.
fn find_program(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(Some(PathBuf::from(path)));
    }
    let program = folder.join("h2spec");
    if program.is_file() {
        return Ok(Some(program));
    }
    let go = Command::new("go").arg("version").stdout(Stdio::null()).status();
    if !go.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    commands::run(Command::new("go").args(["install", GO_PACKAGE]).env("GOBIN", folder))?;
    Ok(Some(program))
}

/// Runs every case against `address` and collects the output.
fn run_cases(
    h2spec: &Path,
    address: SocketAddr,
    flags: &[&str],
    lines: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut command = Command::new(h2spec);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["--host", &host, "--port", &port, "--path", TARGET]).args(flags);
    // The last line says more than the status.
    commands::run_with_lines(&mut command, |line| lines.push(line.to_owned()))?;
    Ok(())
}

/// A router with the graph and the certificates of tests, killed on drop.
struct RouterProcess(Child);

impl RouterProcess {
    fn start(
        root: &Path,
        binary: &Path,
        folder: &Path,
        [plain, tls, admin]: [SocketAddr; 3],
    ) -> Result<Self, Failure> {
        let certificates = root.join("crates/net/tests/certificates");
        let [cert, key] = ["localhost.pem", "localhost.key"].map(|it| certificates.join(it));
        let graph = root.join("crates/server/tests/serving/ticks.graphql");
        let lines = format!(
            "listen: [{{address: '{plain}'}}, {{address: '{tls}', tls: {{cert: '{}', key: '{}'}}}}]\n\
             admin: {{listen: '{admin}'}}\nsupergraph: {{file: '{}'}}\nlog: {{level: error}}\n",
            cert.display(),
            key.display(),
            graph.display()
        );
        let file = folder.join("starling.yaml");
        fs::write(&file, lines).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(&file).stdin(Stdio::null());
        let router =
            command.spawn().map_err(|error| format!("cannot start the router: {error}"))?;
        let mut router = Self(router);
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(admin).is_err() {
            let has_ended = router.0.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || Instant::now() > deadline {
                return Err("the router does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(router)
    }
}

impl Drop for RouterProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
