//! Files of 100,000 nodes.

use std::fmt::Write as _;

use super::*;

/// 1,000 networks in a row, 100 nodes on each, one gateway between neighbours.
pub(crate) fn large(as_ranges: bool) -> String {
    let mut text = String::from("[session]\nname = \"large\"\nkey_file = \"k\"\n");
    let mut networks = Vec::new();
    for network in 0..1000 {
        let _ = write!(
            text,
            "[[network]]\nname = \"n{network}\"\nprotocol = \"tcp\"\n"
        );
        networks.push(format!("\"n{network}\""));
        let (high, low) = (network / 250, network % 250);
        if as_ranges {
            let _ = write!(
                text,
                "[[node]]\nname = \"n{network}x[00-98]\"\n\
                 addresses = {{ n{network} = \"10.{high}.{low}.[1-99]:7100\" }}\n"
            );
        } else {
            for node in 0..99 {
                let _ = write!(
                    text,
                    "[[node]]\nname = \"n{network}x{node:02}\"\n\
                     addresses = {{ n{network} = \"10.{high}.{low}.{}:7100\" }}\n",
                    node + 1
                );
            }
        }
        let next = (network + 1) % 1000;
        let (next_high, next_low) = (next / 250, next % 250);
        let _ = write!(
            text,
            "[[node]]\nname = \"gw{network}\"\ngateway = true\naddresses = {{ \
             n{network} = \"10.{high}.{low}.200:7100\", n{next} = \"10.{next_high}.{next_low}.201:7100\" }}\n"
        );
    }
    let _ = write!(
        text,
        "[[channel]]\nname = \"main\"\nnetworks = [{}]\n",
        networks.join(", ")
    );
    text
}

#[test]
fn a_hundred_thousand_nodes() {
    let ranges = Cluster::parse(&large(true), ".").unwrap_or_else(|error| panic!("{error}"));
    let tables = Cluster::parse(&large(false), ".").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ranges.node_count(), 100_000);
    assert_eq!(ranges.digest(), tables.digest());
    assert_eq!(ranges.node("n999x98"), tables.node("n999x98"));
}

/// Only the first mistakes are looked at closely.
#[test]
fn a_hundred_thousand_mistakes() {
    let text = large(false);
    let (head, rest) = text.split_at(text.find("[[network]]").unwrap());
    let (body, tail) = rest.split_at(rest.find("[[channel]]").unwrap());
    let misspelt = text.replace("{ n", "{ m");
    for text in [format!("{head}{body}{body}{tail}"), misspelt] {
        let error = Cluster::parse(&text, ".").unwrap_err();
        assert_eq!(error.mistakes.len(), MAX_MISTAKES);
        assert!(error.unlisted > 90_000, "{}", error.unlisted);
    }
}
