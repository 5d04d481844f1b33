//! Server processes pinned to cores: the measured server on one core, everything else on another.

use crate::setup::{Bench, read_file};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use test_kit::commands::Failure;

/// The core of the measured server.
pub(crate) const MEASURED_CORE: &str = "0";

/// The core of every other process.
pub(crate) const OTHER_CORE: &str = "1";

/// The deadline for a server to become ready. Routers that run in a virtual machine start most slowly.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two readiness checks.
const READINESS_INTERVAL: Duration = Duration::from_millis(20);

/// The read timeout of one readiness check.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A running server process, killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The path of its GraphQL endpoint.
    pub(crate) path: String,
    /// The address of the admin listener, for routers that were started with one.
    pub(crate) admin: Option<SocketAddr>,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }

    /// Ends the server as an operator does, and waits until it has ended.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        let mut command = Command::new("kill");
        command.args(["-INT", &self.pid().to_string()]);
        let failed = |error| format!("cannot stop a server: {error}");
        command.status().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        Ok(())
    }

    /// Returns the current and the peak resident memory, in MiB.
    pub(crate) fn resident_mib(&self) -> (f64, f64) {
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

impl Bench {
    /// Starts a server process and waits until it is ready.
    pub(crate) fn start_server(
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

    /// Returns the output of a running or ended server process.
    pub(crate) fn read_log(&self, name: &str) -> Result<String, Failure> {
        read_file(&self.reports.join(format!("{name}.log")))
    }
}

/// Returns a command that runs a program on one core.
pub(crate) fn pinned_command(core: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", core]).arg(program);
    command
}

pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
    let [address] = free_addresses()?;
    Ok(address)
}

/// Returns different addresses with free ports.
pub(crate) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], Failure> {
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
