//! A Kafka broker for measurements: one node, run from the jars of the tests, in a folder that is recreated at each
//! start.

use crate::server_process::{OTHER_CORE, ServerProcess, free_addresses, pinned_command};
use crate::setup::{Bench, write_file};
use test_kit::commands::{self, Failure};
use test_kit::kafka::download::fetch_jars;

/// Additional settings: segments are deleted soon after they were read, because an hour of measurements would otherwise
/// fill the disk.
const RETENTION_SETTINGS: &str = "\
log.segment.bytes=33554432
log.retention.bytes=134217728
log.retention.check.interval.ms=2000
";

/// A heap that suffices for batches of events at full speed and leaves the rest of the machine to the router.
const HEAP: &str = "-Xmx512m";

/// Starts a broker on the load generator's core.
pub(crate) fn start(bench: &Bench) -> Result<ServerProcess, Failure> {
    let jars = fetch_jars(&bench.tool)?;
    let folder = bench.reports.join("scratch/kafka");
    // The folder is missing on the first run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let [address, controller] = free_addresses()?;
    let settings = folder.join("server.properties");
    let text =
        test_kit::kafka::settings(address, controller, &folder.join("data"), RETENTION_SETTINGS);
    write_file(&settings, &text)?;
    let mut format = pinned_command(OTHER_CORE, "java");
    commands::read_output(format.args(test_kit::kafka::format_arguments(&jars, &settings)))?;
    let mut broker = pinned_command(OTHER_CORE, "java");
    broker.args(test_kit::kafka::broker_arguments(&jars, &[HEAP], &settings)).current_dir(&folder);
    bench.start_server(broker, "kafka", address, String::new(), None)
}
