//! The counts of many operations and applications.

use std::time::Duration;

use telemetry::name_table::NamedCounters as _;

use super::*;

struct Usage {
    clients: Clients,
    fields: FieldUsage,
    now: Instant,
}

impl Usage {
    fn new(cells_max: usize) -> Self {
        let now = Instant::now();
        Self { clients: NameTable::new(100, now), fields: FieldUsage::new(cells_max, now), now }
    }

    /// Counts a request of an application `after` some seconds.
    fn count(&self, field_use: &Arc<FieldUse>, client: &str, after: u64) {
        let label = || ClientLabel { name: client.into(), version: "1".into() };
        let key = self.clients.admit(client, self.now, label);
        let now = self.now + Duration::from_secs(after);
        self.fields.count(field_use, key, Some(&self.clients), now);
    }

    fn report(&self) -> FieldUsageReport {
        self.fields.report(Some(&self.clients))
    }

    /// The requests by coordinate and application.
    fn rows(&self) -> Vec<(String, String, u64)> {
        let rows = self.report().uses;
        rows.iter()
            .map(|it| (it.coordinate.to_string(), it.client.to_string(), it.requests))
            .collect()
    }
}

fn uses(coordinates: &[&str]) -> Arc<FieldUse> {
    Arc::new(FieldUse::from_iter(coordinates.iter().copied()))
}

#[test]
fn each_field_of_an_operation_gets_all_its_requests_by_application() {
    let usage = Usage::new(100);
    let (top, other) = (uses(&["Product.name", "Query.top"]), uses(&["Product.name"]));
    usage.count(&top, "web", 5);
    usage.count(&top, "web", 2);
    usage.count(&other, "web", 9);
    usage.count(&other, "app", 1);
    let row =
        |coordinate: &str, client: &str, requests| (coordinate.into(), client.into(), requests);
    let expected =
        [row("Product.name", "app", 1), row("Product.name", "web", 3), row("Query.top", "web", 2)];
    assert_eq!(usage.rows(), expected);
    let asked = ["Product.name", "Product.unknown"].map(str::to_owned);
    for (clients_max, expected) in
        [(2, &[("web", 3), ("app", 1)][..]), (1, &[("web", 3)]), (0, &[])]
    {
        let uses = usage.fields.uses_of(&asked, clients_max, Some(&usage.clients));
        let [name, unknown] = &uses[..] else { panic!("{uses:?}") };
        let clients: Vec<_> = name.clients.iter().map(|it| (&*it.client, it.requests)).collect();
        assert_eq!(clients, expected);
        assert_eq!((name.requests, name.client_count), (4, 2));
        assert!(name.last_used.is_some());
        assert_eq!((unknown.requests, unknown.last_used), (0, None));
        assert_eq!((unknown.client_count, unknown.clients.len()), (0, 0));
    }
    usage.count(&top, "web", 20);
    let report = usage.report();
    assert_eq!((report.requests, report.lost), (5, 0));
    let web = &report.uses[1];
    assert_eq!((web.requests, web.last_used - web.first_used), (4, 18));
    assert!(report.since <= web.first_used && report.since <= report.until);
}

#[test]
fn a_field_is_never_left_out_whatever_applications_come() {
    let usage = Usage::new(4);
    for client in 0..20 {
        usage.count(&uses(&["Query.a"]), &format!("client-{client}"), 0);
    }
    // What was counted until now finds room first.
    usage.report();
    usage.count(&uses(&["Query.b"]), "late", 0);
    let rows = usage.rows();
    assert_eq!(rows.iter().map(|it| it.2).sum::<u64>(), 21);
    assert_eq!(rows.len(), 6, "four with names, and one for all others of each field: {rows:?}");
    assert!(rows.contains(&("Query.b".into(), "other".into(), 1)), "{rows:?}");
    assert_eq!(usage.report().lost, 0);
}

#[test]
fn fields_of_too_many_schemas_are_counted_as_lost() {
    let usage = Usage::new(2);
    for field in 0..10 {
        usage.count(&uses(&[&format!("Query.f{field}")]), "web", 0);
    }
    let report = usage.report();
    assert_eq!((report.uses.len(), report.lost), (4, 6));
}

#[test]
fn no_request_is_lost_while_counts_are_multiplied_out() {
    let usage = Usage::new(100_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let usage = &usage;
            scope.spawn(move || {
                for number in 0..5 * PENDING_MAX {
                    // A text of its own each time, as from a client that puts values into texts.
                    usage.count(&uses(&["Query.a", "Query.b"]), &format!("{}", number % 3), thread);
                }
            });
        }
    });
    let report = usage.report();
    assert_eq!(report.requests, 20 * PENDING_MAX as u64);
    let of = |coordinate: &str| {
        let rows = report.uses.iter().filter(|it| *it.coordinate == *coordinate);
        rows.map(|it| it.requests).sum::<u64>()
    };
    assert_eq!((of("Query.a"), of("Query.b")), (report.requests, report.requests));
    assert_eq!(usage.clients.read_rows().other.uses(), 0, "uses of fields are no uses of names");
}
