//! The instructions that the router executes for a request, counted by Valgrind: nearly the same in every run, whatever
//! else the machine does. For differences below the noise of CPU time.

use crate::http_connection::HttpConnection;
use crate::server_process::{MEASURED_CORE, free_addresses, pinned_command};
use crate::setup::{Bench, read_file};
use std::path::Path;
use std::process::{Command, Stdio};
use test_kit::commands::Failure;

/// The numbers of requests of two runs. Their difference leaves out the start of the router and its first requests.
const REQUESTS: [u32; 2] = [200, 1_200];

/// Returns true if Valgrind is installed.
pub(crate) fn can_be_counted() -> bool {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns the instructions for each request with this body, sent one after the other over one connection.
///
/// # Errors
/// Valgrind or the router fails, or a response has no status 200.
pub(crate) fn count_for_each(
    bench: &Bench,
    config: &Path,
    supergraph: &Path,
    body: &str,
) -> Result<f64, Failure> {
    let [few, many] = REQUESTS;
    let first = count_all(bench, config, supergraph, body, few)?;
    let all = count_all(bench, config, supergraph, body, many)?;
    Ok((all as f64 - first as f64) / f64::from(many - few))
}

/// Returns the instructions of a router from its start to its end, with this many requests between.
fn count_all(
    bench: &Bench,
    config: &Path,
    supergraph: &Path,
    body: &str,
    requests: u32,
) -> Result<u64, Failure> {
    let counts = bench.scratch_folder("instructions")?.join("callgrind.out");
    let [address, admin] = free_addresses()?;
    let mut command = pinned_command(MEASURED_CORE, "valgrind");
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", counts.display())).arg(&bench.starling);
    command.arg("serve").arg("--config").arg(config).arg("--supergraph").arg(supergraph);
    command.args(["--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
    let mut server = bench.start_server(command, "valgrind", address, "/graphql".into(), None)?;
    let mut connection = HttpConnection::new(address);
    for _ in 0..requests {
        let response = connection.post("/graphql", body)?;
        if response.status != 200 {
            return Err(format!("status {}: {}", response.status, response.body));
        }
    }
    server.stop()?;
    read_summary(&read_file(&counts)?)
        .ok_or_else(|| format!("{} has no line `summary`", counts.display()))
}

/// Returns the number of instructions in a report of Callgrind.
fn read_summary(report: &str) -> Option<u64> {
    report.lines().find_map(|line| line.strip_prefix("summary: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_report_is_read() {
        let report = "version: 1\nevents: Ir\nsummary: 2096074858\n\nfn=(1) main\n1 7\n";
        assert_eq!(read_summary(report), Some(2_096_074_858));
        assert_eq!(read_summary("version: 1\n"), None);
    }
}
