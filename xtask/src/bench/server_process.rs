//! Server processes pinned to cores: the measured server on one core, everything else on another.

use super::Bench;
use crate::Failure;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The core of the measured server.
const MEASURED_CORE: &str = "0";

/// The core of every other process.
pub(super) const OTHER_CORE: &str = "1";

/// The deadline for a server to become ready. Routers that run in a virtual machine start most slowly.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two readiness checks.
const READINESS_INTERVAL: Duration = Duration::from_millis(20);

/// The interval between two observations while the load generator runs.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(200);

/// The read timeout of one readiness check.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The subgraphs of the federation benchmark, as named in its supergraph.
const BENCHMARK_SUBGRAPHS: [&str; 4] = ["accounts", "inventory", "products", "reviews"];

/// A running server process, killed on drop.
pub(super) struct ServerProcess {
    child: Child,
    pub(super) address: SocketAddr,
    /// The path of its GraphQL endpoint.
    pub(super) path: String,
    /// The address of the admin listener, for routers that were started with one.
    pub(super) admin: Option<SocketAddr>,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerProcess {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Returns the current and the peak resident memory, in MiB.
    pub(super) fn resident_mib(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_default();
        let kib = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key));
            let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            number.unwrap_or(0.0) / 1024.0
        };
        (kib("VmRSS:"), kib("VmHWM:"))
    }
}

/// Checks that the machine has two cores and the program `taskset`, which pins processes to them.
pub(super) fn check_cores() -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Err(
            "this needs two cores: one for the measured server, one for everything else".to_owned()
        );
    }
    let taskset = Command::new("taskset").arg("--version").stdout(Stdio::null()).status();
    taskset.map(|_| ()).map_err(|error| format!("cannot run `taskset` (util-linux): {error}"))
}

/// A running load generator.
pub(super) struct RunningLoad {
    child: Child,
    report: PathBuf,
}

impl RunningLoad {
    /// Calls `observe` at intervals until the load generator ends, then returns its report.
    pub(super) fn observe_to_end(
        mut self,
        mut observe: impl FnMut() -> Result<(), Failure>,
    ) -> Result<serde_json::Value, Failure> {
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            observe()?;
            std::thread::sleep(OBSERVATION_INTERVAL);
        }
        self.finish()
    }

    /// Waits until the load generator ends and returns its report.
    pub(super) fn finish(mut self) -> Result<serde_json::Value, Failure> {
        // Status 1 may mean that events were lost, which the report states. Only a missing report is a failure here.
        let status = self
            .child
            .wait()
            .map_err(|error| format!("cannot wait for the load generator: {error}"))?;
        read_report(&self.report, status)
    }
}

/// Reads the first run of a report.
fn read_report(
    path: &Path,
    status: std::process::ExitStatus,
) -> Result<serde_json::Value, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|_| format!("the load generator wrote no report ({status})"))?;
    let runs: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| format!("the report of the load generator: {error}"))?;
    Ok(runs[0].clone())
}

/// The parameters of one run of the load generator.
pub(super) struct LoadRun<'a> {
    pub(super) name: &'a str,
    pub(super) operation: &'a Path,
    pub(super) connections: u32,
    /// Further arguments of `starling bench query`.
    pub(super) extra: Vec<String>,
}

impl Bench {
    /// Starts the floor on the measured core: a server that sends a fixed response, the least work possible.
    pub(super) fn start_floor(&self, response: &Path) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &self.tool);
        command.args(["bench", "floor", "--listen", &address.to_string(), "--file"]).arg(response);
        self.start_server(command, "floor", address, "/".to_owned(), None)
    }

    /// Starts the four subgraphs of the federation benchmark.
    pub(super) fn start_subgraphs(&self, delay_ms: u32) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(OTHER_CORE, &self.subgraphs);
        command.args(["--listen", &address.to_string(), "--delay-ms", &delay_ms.to_string()]);
        self.start_server(command, "subgraphs", address, "/accounts".to_owned(), None)
    }

    /// Starts mocks for all subgraphs of a supergraph.
    pub(super) fn start_mock(&self, supergraph: &Path) -> Result<ServerProcess, Failure> {
        self.start_mock_with(supergraph, &[])
    }

    /// Starts mocks for all subgraphs of a supergraph, with further arguments of `starling mock`.
    pub(super) fn start_mock_with(
        &self,
        supergraph: &Path,
        arguments: &[&str],
    ) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(OTHER_CORE, &self.tool);
        command.args(["mock", "--listen", &address.to_string()]).args(arguments);
        command.arg("--supergraph").arg(supergraph);
        self.start_server(command, "mock", address, "/".to_owned(), None)
    }

    /// Starts the router under test with the `start` script of its folder. It serves the supergraph with its subgraphs
    /// at the given address, and is ready when it responds to `operation` without errors.
    pub(super) fn start_router(
        &self,
        supergraph: &Path,
        subgraph_names: &[&str],
        subgraphs: SocketAddr,
        operation: &Path,
    ) -> Result<ServerProcess, Failure> {
        let folder = self.root.join("benches/routers").join(&self.router);
        let script = folder.join("start");
        if !script.is_file() {
            return Err(format!("there is no benches/routers/{}/start", self.router));
        }
        let scratch = self.reports.join("scratch").join(&self.router);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        // Most routers take the URLs of subgraphs from the supergraph only.
        let text = std::fs::read_to_string(supergraph)
            .map_err(|error| format!("{}: {error}", supergraph.display()))?;
        let placed = scratch.join("supergraph.graphql");
        write_file(&placed, &replace_subgraph_urls(&text, subgraph_names, subgraphs))?;
        let address = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &script);
        command
            .current_dir(&scratch)
            .env("STARLING", &self.starling)
            .env("ROUTER_FOLDER", &folder)
            .env("ROUTER_PORT", address.port().to_string())
            .env("ROUTER_SUPERGRAPH", &placed);
        let path = std::fs::read_to_string(folder.join("path")).unwrap_or_default();
        let path = if path.trim().is_empty() { "/graphql" } else { path.trim() }.to_owned();
        let operation = std::fs::read_to_string(operation)
            .map_err(|error| format!("{}: {error}", operation.display()))?;
        let body = serde_json::json!({ "query": operation }).to_string();
        self.start_server(command, &self.router, address, path, Some(&body))
    }

    /// Starts Starling with the given configuration file.
    pub(super) fn start_starling(
        &self,
        config: &Path,
        supergraph: &Path,
    ) -> Result<ServerProcess, Failure> {
        let [address, admin] = free_addresses()?;
        let mut command = pinned_command(MEASURED_CORE, &self.starling);
        command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
        command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
        let body = r#"{"query":"{ __typename }"}"#;
        let mut server =
            self.start_server(command, "starling", address, "/graphql".to_owned(), Some(body))?;
        server.admin = Some(admin);
        Ok(server)
    }

    /// Starts Starling with a configuration that itself sets the listener to `address`.
    pub(super) fn start_starling_at(
        &self,
        config: &Path,
        supergraph: &Path,
        address: SocketAddr,
    ) -> Result<ServerProcess, Failure> {
        let admin = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &self.starling);
        command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
        command.args(["--admin-listen", &admin.to_string()]);
        let mut server =
            self.start_server(command, "starling", address, "/graphql".to_owned(), None)?;
        server.admin = Some(admin);
        Ok(server)
    }

    /// Starts a broker on the load generator's core. `arguments` returns its command line for the address it must use.
    pub(super) fn start_beside(
        &self,
        name: &str,
        program: &Path,
        arguments: impl FnOnce(SocketAddr) -> Vec<String>,
    ) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(OTHER_CORE, program);
        command.args(arguments(address));
        self.start_server(command, name, address, String::new(), None)
    }

    /// Starts the broadcast floor: a server that sends a fixed `message` to all clients for each event, the least work
    /// possible.
    pub(super) fn start_broadcast_floor(
        &self,
        message: &str,
        nats: SocketAddr,
        subject: &str,
    ) -> Result<ServerProcess, Failure> {
        let address = free_address()?;
        let mut command = pinned_command(MEASURED_CORE, &self.tool);
        command.args(["bench", "floor", "--subscriptions", "--listen", &address.to_string()]);
        command.args(["--message", message, "--events", &format!("nats://{nats}/{subject}")]);
        self.start_server(command, "floor", address, "/".to_owned(), None)
    }

    /// Runs `starling bench subscriptions` against a server and returns its report.
    pub(super) fn subscriptions(
        &self,
        server: &ServerProcess,
        arguments: Vec<String>,
    ) -> Result<serde_json::Value, Failure> {
        self.begin_subscriptions(server, arguments)?.finish()
    }

    /// Starts `starling bench subscriptions` against a server without waiting for its end.
    pub(super) fn begin_subscriptions(
        &self,
        server: &ServerProcess,
        arguments: Vec<String>,
    ) -> Result<RunningLoad, Failure> {
        let report = self.reports.join("subscriptions-run.json");
        let _ = std::fs::remove_file(&report);
        let mut command = pinned_command(OTHER_CORE, &self.tool);
        command
            .args(["bench", "subscriptions", "--quiet", "--pid", &server.pid().to_string()])
            .arg("--json")
            .arg(&report)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if !arguments.iter().any(|word| word == "--url") {
            command.args(["--url", &server.url().replacen("http", "ws", 1)]);
        }
        let child =
            command.spawn().map_err(|error| format!("cannot run the load generator: {error}"))?;
        Ok(RunningLoad { child, report })
    }

    /// Starts the router under test in front of the benchmark's subgraphs.
    pub(super) fn start_benchmark_router(
        &self,
        subgraphs: &ServerProcess,
    ) -> Result<ServerProcess, Failure> {
        let folder = self.file("fixtures/federation-benchmark");
        self.start_router(
            &folder.join("supergraph.graphql"),
            &BENCHMARK_SUBGRAPHS,
            subgraphs.address,
            &folder.join("operation.graphql"),
        )
    }

    /// Runs `starling bench query` against a server and returns its report.
    pub(super) fn load(
        &self,
        server: &ServerProcess,
        run: &LoadRun<'_>,
    ) -> Result<serde_json::Value, Failure> {
        let report = self.reports.join("run.json");
        let mut command = pinned_command(OTHER_CORE, &self.tool);
        command
            .args(["bench", "query", "--quiet", "--warmup", "1s", "--name", run.name])
            .args(["--url", &server.url(), "--pid", &server.pid().to_string()])
            .args(["--connections", &run.connections.to_string()])
            .args(["--duration", &format!("{}s", self.seconds), "--operation"])
            .arg(run.operation)
            .arg("--json")
            .arg(&report)
            .args(&run.extra)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // Status 1 may mean failed requests, which the report states. Only a missing report is a failure here.
        let _ = std::fs::remove_file(&report);
        let status =
            command.status().map_err(|error| format!("cannot run the load generator: {error}"))?;
        read_report(&report, status)
    }

    /// Writes the runs as JSON and as an HTML page with the same name.
    pub(super) fn report(&self, name: &str, runs: &[serde_json::Value]) -> Result<(), Failure> {
        let json = self.reports.join(format!("{name}.json"));
        let html = self.reports.join(format!("{name}.html"));
        write_file(&json, &format!("{:#}\n", serde_json::Value::from(runs)))?;
        let mut command = Command::new(&self.tool);
        command.args(["bench", "report", "--title", name, "--html"]).arg(&html).arg(&json);
        let status = command.stdout(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => {
                println!("\n{}\n{}", json.display(), html.display());
                Ok(())
            }
            _ => Err("cannot write the report as HTML".to_owned()),
        }
    }

    /// Returns the output of a running or ended server process.
    pub(super) fn log(&self, name: &str) -> Result<String, Failure> {
        let path = self.reports.join(format!("{name}.log"));
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Starts a server process and waits until it is ready.
    pub(super) fn start_server(
        &self,
        mut command: Command,
        name: &str,
        address: SocketAddr,
        path: String,
        operation: Option<&str>,
    ) -> Result<ServerProcess, Failure> {
        let log = self.reports.join(format!("{name}.log"));
        let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut server = ServerProcess { child, address, path, admin: None };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if server.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{name} has ended; its output is in {}", log.display()));
            }
            let ready = match operation {
                None => TcpStream::connect(address).is_ok(),
                Some(body) => serves_operation(address, &server.path, body),
            };
            if ready {
                return Ok(server);
            }
            if Instant::now() > deadline {
                return Err(format!("{name} is not ready; its output is in {}", log.display()));
            }
            std::thread::sleep(READINESS_INTERVAL);
        }
    }
}

pub(super) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Sets the URLs of the named subgraphs in a supergraph to `http://ADDRESS/NAME`.
pub(super) fn replace_subgraph_urls(
    supergraph: &str,
    names: &[&str],
    address: SocketAddr,
) -> String {
    let mut placed = String::new();
    for line in supergraph.split_inclusive('\n') {
        let name = names.iter().find(|name| line.contains(&format!("name: \"{name}\"")));
        match (name, line.split_once("url: \"")) {
            (Some(name), Some((before, after))) => {
                let after = after.split_once('"').map_or("", |(_, rest)| rest);
                placed.push_str(&format!("{before}url: \"http://{address}/{name}\"{after}"));
            }
            _ => placed.push_str(line),
        }
    }
    placed
}

/// Returns a command that runs a program on one core.
pub(super) fn pinned_command(core: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(program);
    command
}

pub(super) fn free_address() -> Result<SocketAddr, Failure> {
    let [address] = free_addresses()?;
    Ok(address)
}

/// Returns different addresses with free ports.
pub(super) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], Failure> {
    test_kit::free_addresses().map_err(|error| format!("no free port: {error}"))
}

/// True if the server responds to an operation with status 200 and without errors.
fn serves_operation(address: SocketAddr, path: &str, body: &str) -> bool {
    let send = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    send().is_ok_and(|response| {
        response.starts_with("HTTP/1.1 200") && !response.contains("\"errors\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgraph_urls_are_replaced_by_their_address() {
        let supergraph = "  A @join__graph(name: \"a\", url: \"http://x:1/q\")\n  B\n    @join__graph(name: \"b\", url: \"\")\n  C\n";
        let placed = replace_subgraph_urls(supergraph, &["a", "b"], "127.0.0.1:9".parse().unwrap());
        assert_eq!(
            placed,
            "  A @join__graph(name: \"a\", url: \"http://127.0.0.1:9/a\")\n  B\n    @join__graph(name: \"b\", url: \"http://127.0.0.1:9/b\")\n  C\n"
        );
    }
}
