//! HTTP/2 by the book: runs h2spec, 145 cases of RFC 7540 and RFC 7541, against the router.
//!
//! h2spec is a program in Go. It is fetched through the Go module proxy into the target folder and
//! kept there; where Go is missing the run is skipped, and says so.

use crate::{Failure, process, test};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program and its version, as Go wants them.
const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// Says where a program is that is already there.
const VARIABLE: &str = "STARLING_H2SPEC";

/// What every run must end with.
const ALL_PASSED: &str = "145 tests, 145 passed, 0 skipped, 0 failed";

/// A query that needs no subgraph.
const TARGET: &str = "/graphql?query=%7B__typename%7D";

/// How long the router may take to listen.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// Runs h2spec over TLS and without.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let binary = test::build_router(root, &["--profile", "dev"])?;
    let folder = binary.with_file_name("h2spec");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let Some(h2spec) = program(&folder)? else {
        println!("skipped: h2spec: Go is not installed, and {VARIABLE} does not name the program");
        return Ok(());
    };
    let [plain, tls, admin] = free_addresses()?;
    let router = Router::start(root, &binary, &folder, [plain, tls, admin])?;
    let mut lines = Vec::new();
    judge(&h2spec, tls, &["--tls", "--insecure"], &mut lines)?;
    if !lines.iter().any(|line| line == ALL_PASSED) {
        return Err("h2spec found something over TLS".to_owned());
    }
    lines.clear();
    judge(&h2spec, plain, &[], &mut lines)?;
    drop(router);
    if !lines.iter().any(|line| line == ALL_PASSED) {
        return Err("h2spec found something without TLS".to_owned());
    }
    println!("\nh2spec: 145 of 145, over TLS and without");
    Ok(())
}

/// The program, fetched if need be. `None` without Go.
fn program(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
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
    process::run(Command::new("go").args(["install", PACKAGE]).env("GOBIN", folder))?;
    Ok(Some(program))
}

/// Runs every case against `address`, and keeps what it says.
fn judge(
    h2spec: &Path,
    address: SocketAddr,
    flags: &[&str],
    lines: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut command = Command::new(h2spec);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["--host", &host, "--port", &port, "--path", TARGET]).args(flags);
    // Its last line tells more than its status.
    process::watch(&mut command, |line| lines.push(line.to_owned()))?;
    Ok(())
}

fn free_addresses() -> Result<[SocketAddr; 3], Failure> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let failed = |error| format!("no free port on 127.0.0.1: {error}");
    // Held together, so that they differ.
    let held = [bind().map_err(failed)?, bind().map_err(failed)?, bind().map_err(failed)?];
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); 3];
    for (address, listener) in addresses.iter_mut().zip(&held) {
        *address = listener.local_addr().map_err(failed)?;
    }
    Ok(addresses)
}

/// A router with the graph and the certificates of tests; killed when dropped.
struct Router(Child);

impl Router {
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
        let deadline = Instant::now() + START_TIME_MAX;
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

impl Drop for Router {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
