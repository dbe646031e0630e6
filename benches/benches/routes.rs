//! What routes cost: reading a cluster file, a route that nobody has asked for before, and one
//! that somebody has.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use madgate_vchannel::topology::Routes;
use madgate_vchannel::{Cluster, NodeId};

/// A row of networks with nodes on each, and a gateway between every two.
fn row(networks: usize, nodes: usize) -> String {
    let mut text = String::from("session = { name = \"row\", key_file = \"k\" }\n");
    let mut names = Vec::new();
    for network in 0..networks {
        let _ = write!(
            text,
            "[[network]]\nname = \"n{network}\"\nprotocol = \"shm\"\ndirectory = \"/run/n{network}\"\n\
             [[node]]\nname = \"x{network}-[0-{last}]\"\n\
             addresses = {{ n{network} = \"x[0-{last}]\" }}\n",
            last = nodes - 1
        );
        names.push(format!("\"n{network}\""));
    }
    for gateway in 1..networks {
        let before = gateway - 1;
        let _ = write!(
            text,
            "[[node]]\nname = \"g{gateway}\"\ngateway = true\n\
             addresses = {{ n{before} = \"g\", n{gateway} = \"h\" }}\n"
        );
    }
    let names = names.join(", ");
    let _ = write!(text, "[[channel]]\nname = \"main\"\nnetworks = [{names}]\n");
    text
}

fn routes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("routes");
    group.sample_size(20);
    for networks in [2, 100] {
        let text = row(networks, 100);
        let read = || Cluster::parse(black_box(&text), "/").expect("a good file");
        let size = format!("{networks} networks of 100 nodes");
        group.bench_function(format!("{size}: file read"), |bencher| bencher.iter(read));

        let cluster = Arc::new(read());
        let channel = cluster.channel_named("main").expect("a channel");
        let node = |name: String| cluster.node(&name).expect("a node");
        let ends: [NodeId; 2] = [node("x0-0".into()), node(format!("x{}-99", networks - 1))];
        let new = || Routes::new(Arc::clone(&cluster), channel);
        group.bench_function(format!("{size}: first route"), |bencher| {
            bencher.iter_batched_ref(
                new,
                |routes| routes.route(ends[0], ends[1]).expect("a route"),
                BatchSize::LargeInput,
            );
        });
        let routes = new();
        group.bench_function(format!("{size}: route again"), |bencher| {
            bencher.iter(|| routes.route(black_box(ends[0]), ends[1]).expect("a route"));
        });
    }
    group.finish();
}

criterion_group!(benches, routes);
criterion_main!(benches);
