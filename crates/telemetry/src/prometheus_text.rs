//! The two text formats of metrics: OpenMetrics as the library writes it, and the older format of Prometheus, converted
//! from it.

/// Converts OpenMetrics text to the text format of Prometheus, version 0.0.4. There a `# TYPE` line announces the name
/// of the samples themselves: `a_total` for a counter, where OpenMetrics announces the family `a`. A Prometheus server
/// that reads one format as the other takes every counter for an untyped metric. Units and the end mark do not exist
/// there.
pub(crate) fn prometheus_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 16);
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest.split_once(' ').unwrap_or((rest, "")));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(name, _)| *name == family) {
                push_line(&mut text, &["# HELP ", family, suffix, " ", help]);
            }
            push_line(&mut text, &["# TYPE ", family, suffix, " ", kind]);
        } else if !line.starts_with("# ") && !line.is_empty() {
            push_line(&mut text, &[line]);
        }
    }
    text
}

fn push_line(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_announced_under_the_name_of_their_samples() {
        let open_metrics = "# HELP a_requests Requests, by kind.\n# TYPE a_requests counter\n\
            a_requests_total{kind=\"x\"} 1\n# HELP b_seconds Time.\n# TYPE b_seconds histogram\n# UNIT b_seconds seconds\n\
            b_seconds_sum 0.5\nb_seconds_count 1\nb_seconds_bucket{le=\"+Inf\"} 1\n# HELP c Open.\n# TYPE c gauge\nc 2\n\
            # TYPE d unknown\nd 3\n# EOF\n";
        let expected = "# HELP a_requests_total Requests, by kind.\n# TYPE a_requests_total counter\n\
            a_requests_total{kind=\"x\"} 1\n# HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
            b_seconds_sum 0.5\nb_seconds_count 1\nb_seconds_bucket{le=\"+Inf\"} 1\n# HELP c Open.\n# TYPE c gauge\nc 2\n\
            # TYPE d untyped\nd 3\n";
        assert_eq!(prometheus_text(open_metrics), expected);
    }
}
