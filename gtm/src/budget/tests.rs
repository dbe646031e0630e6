//! Promises stay within the memory behind them, and nobody's share vanishes.

use proptest::prelude::*;

use super::{Budget, GUARANTEED_BYTES};

#[test]
fn a_quarter_is_guaranteed() {
    let mut budget = Budget::new(64 << 10);
    assert_eq!(budget.flow_limit(), 4);
    for _ in 0..4 {
        assert!(budget.try_admit());
    }
    assert!(!budget.try_admit());
    assert_eq!(budget.promised(), 4 * GUARANTEED_BYTES);
    budget.release(0);
    assert!(budget.try_admit());
}

#[test]
fn nobody_gets_less_than_guaranteed_or_than_it_has() {
    let mut budget = Budget::new(64 << 10);
    assert!(budget.try_admit() && budget.try_admit());
    budget.change(0, 48 << 10);
    assert_eq!(budget.allowance(48 << 10), 48 << 10);
    budget.change(0, GUARANTEED_BYTES);
    assert!(budget.allowance(0) >= GUARANTEED_BYTES);
}

#[test]
fn busy_flows_share_and_a_newcomer_finds_as_much_free() {
    const TOTAL: u64 = 1 << 20;
    const ELASTIC: u64 = TOTAL / 4 * 3;
    for flows in [1u64, 3, 4] {
        let mut budget = Budget::new(TOTAL);
        let mut held = vec![0; usize::try_from(flows).unwrap()];
        for _ in &held {
            assert!(budget.try_admit());
        }
        // Everybody takes what it may, and hands half of it on, many times over.
        for _ in 0..200 {
            for own in &mut held {
                let rest = *own / 2;
                budget.change(*own, rest);
                let now = budget.allowance(rest);
                budget.change(rest, now);
                *own = now;
            }
        }
        let share = ELASTIC / (flows + 1);
        for own in &held {
            let elastic = own - GUARANTEED_BYTES;
            assert!(elastic.abs_diff(share) < share / 10, "{elastic} of {share}");
        }
        assert!(budget.try_admit());
        assert!(budget.allowance(0) > share / 3);
    }
}

#[test]
fn flows_that_hold_nothing_take_nothing_from_others() {
    const ELASTIC: u64 = 192 << 20;
    let mut budget = Budget::new(ELASTIC / 3 * 4);
    for _ in 0..1000 {
        assert!(budget.try_admit());
        budget.change(0, GUARANTEED_BYTES);
    }
    assert!(budget.try_admit());
    assert_eq!(budget.allowance(0), GUARANTEED_BYTES + ELASTIC / 2);
    // One of them becomes busy, and is still again.
    for _ in 0..2 {
        budget.change(GUARANTEED_BYTES, 2 * GUARANTEED_BYTES);
        assert!(budget.allowance(0) < GUARANTEED_BYTES + ELASTIC / 2);
        budget.change(2 * GUARANTEED_BYTES, 0);
        assert_eq!(budget.allowance(0), GUARANTEED_BYTES + ELASTIC / 2);
        budget.change(0, GUARANTEED_BYTES);
    }
}

/// The first of many flows had everything before the others came. All give back what they hold and
/// take what they may, one after the other, always in the same order.
#[test]
fn what_the_first_have_grabbed_is_soon_shared_by_all() {
    const ELASTIC: u64 = 192 << 20;
    const MOST: u64 = 4 << 20;
    const TURNS: usize = 8;
    for flows in [9usize, 64, 256, 1000] {
        let mut budget = Budget::new(ELASTIC / 3 * 4);
        let mut held = vec![0; flows];
        for own in &mut held {
            assert!(budget.try_admit());
            *own = budget.allowance(0).min(MOST);
            budget.change(0, *own);
        }
        for _ in 0..TURNS {
            for own in &mut held {
                budget.change(*own, 0);
                *own = budget.allowance(0).min(MOST);
                budget.change(0, *own);
            }
        }
        let all: u64 = held.iter().sum();
        let fair = all / flows as u64;
        let least = held.iter().min().copied().unwrap_or(0);
        assert!(least * 10 > fair * 8, "{flows}: {least} of {fair}");
        let free = ELASTIC - budget.elastic_used();
        assert!(
            free <= ELASTIC / 4 || fair == MOST,
            "{flows}: {free} unused"
        );
    }
}

/// What a flow of the model does.
#[derive(Debug, Clone)]
enum Step {
    Admit,
    Raise(usize),
    Forward(usize, u64),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Admit),
        4 => any::<usize>().prop_map(Step::Raise),
        4 => (any::<usize>(), 0..100_000u64).prop_map(|(flow, bytes)| Step::Forward(flow, bytes)),
        1 => any::<usize>().prop_map(Step::Release),
    ]
}

proptest! {
    #[test]
    fn promises_stay_within_memory(
        bytes in 0..300_000u64,
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let mut budget = Budget::new(bytes);
        let mut flows: Vec<u64> = Vec::new();
        for step in steps {
            let count = flows.len();
            match step {
                Step::Admit if budget.try_admit() => flows.push(0),
                Step::Raise(flow) if count > 0 => {
                    let own = &mut flows[flow % count];
                    let allowed = budget.allowance(*own);
                    prop_assert!(allowed >= *own && allowed >= GUARANTEED_BYTES);
                    budget.change(*own, allowed);
                    *own = allowed;
                }
                Step::Forward(flow, bytes) if count > 0 => {
                    let own = &mut flows[flow % count];
                    let rest = own.saturating_sub(bytes);
                    budget.change(*own, rest);
                    *own = rest;
                }
                Step::Release(flow) if count > 0 => budget.release(flows.swap_remove(flow % count)),
                _ => {}
            }
            let really: u64 = flows.iter().map(|own| GUARANTEED_BYTES.max(*own)).sum();
            prop_assert_eq!(budget.promised(), really);
            prop_assert!(really <= bytes);
        }
        for own in flows {
            budget.release(own);
        }
        prop_assert_eq!(budget.promised(), 0);
    }
}
