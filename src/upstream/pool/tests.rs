use super::*;
use crate::shared::Phase;
use crate::upstream::tests::upstream;

fn pool_at(heads: &[u64]) -> Arc<UpstreamPool> {
    let pool = UpstreamPool::new(heads.iter().map(|_| upstream(false)).collect(), 1);
    for (upstream, head) in pool.upstreams.iter().zip(heads) {
        upstream.admit(*head, *head, Rules::Helicon);
    }
    pool.changed(false);
    pool
}

#[tokio::test]
async fn common_head_is_that_of_most_upstreams() {
    let common = |heads: &[u64]| pool_at(heads).sight().borrow().common;
    assert_eq!(common(&[5, 1000, 1001]), 1000, "one is far behind");
    assert_eq!(common(&[1 << 40, 1000, 1001]), 1001, "one names a false head");
    assert_eq!(common(&[5, 1000, 1 << 40]), 1000);
    assert_eq!([&[][..], &[7], &[5, 1000]].map(common), [0, 7, 5]);
}

#[tokio::test]
async fn rules_stay_while_no_upstream_is_admitted() {
    let pool = pool_at(&[5, 7]);
    let wait = || ("gone".to_owned(), Duration::ZERO);
    for upstream in &pool.upstreams {
        upstream.eject("transport", Phase::Waiting, wait());
        pool.changed(false);
        assert_eq!(pool.sight().borrow().rules(), Rules::Helicon);
    }
    for (upstream, rules) in pool.upstreams.iter().zip([Rules::Helicon, Rules::BeforeHelicon]) {
        upstream.admit(7, 7, Rules::BeforeHelicon);
        pool.changed(false);
        assert_eq!(pool.sight().borrow().rules(), rules, "an older release of both");
    }
}

#[tokio::test]
async fn one_upstream_of_several_decides_the_rules_of_an_empty_store_only() {
    for (stored, rules) in
        [(None, Rules::Helicon), (Some(Rules::BeforeHelicon), Rules::BeforeHelicon)]
    {
        let pool = UpstreamPool::new([(); 2].map(|()| upstream(false)).into(), 1);
        stored.into_iter().for_each(|stored| pool.note_rules(stored));
        pool.upstreams[0].admit(7, 7, Rules::Helicon);
        pool.changed(false);
        assert_eq!(pool.sight().borrow().rules(), rules, "{stored:?} in the store");
        pool.upstreams[1].admit(7, 7, Rules::BeforeHelicon);
        pool.changed(false);
        assert_eq!(pool.sight().borrow().rules(), Rules::BeforeHelicon, "they disagree");
    }
}

#[tokio::test]
async fn two_upstreams_that_disagree_change_no_rules() {
    for (stored, other) in
        [(Rules::Helicon, Rules::BeforeHelicon), (Rules::BeforeHelicon, Rules::Helicon)]
    {
        let pool = UpstreamPool::new([(); 2].map(|()| upstream(false)).into(), 1);
        pool.note_rules(stored);
        pool.note_rules(other); // of a session that begins later
        for (upstream, rules) in pool.upstreams.iter().zip([other, stored]) {
            upstream.admit(7, 7, rules);
            pool.changed(false);
            assert_eq!(pool.sight().borrow().rules(), stored);
        }
    }
}

#[tokio::test]
async fn upstream_that_throttles_pauses_and_one_that_is_away_is_ejected() {
    let pool = pool_at(&[200]);
    let upstream = &pool.upstreams[0];
    let admitted = || pool.sight().borrow().admitted;
    let status = hyper::StatusCode::TOO_MANY_REQUESTS;
    let after = Some(Duration::from_secs(9));
    let throttled = CallError::Throttled { status, after };
    assert_eq!(pool.failed(upstream, throttled), AfterFailure::Paused);
    assert_eq!((upstream.resting().is_some(), admitted()), (true, 1));
    let late = CallError::TimedOut(Duration::ZERO);
    assert_eq!((pool.failed(upstream, late), admitted()), (AfterFailure::Tolerated, 1));
    let away = CallError::Unreachable("refused".into());
    assert_eq!((pool.failed(upstream, away), admitted()), (AfterFailure::Ejected, 0));
}

#[tokio::test]
async fn lowest_of_several_withdrawals_is_taken() {
    let pool = pool_at(&[200]);
    [102, 100, 101].iter().for_each(|from| pool.withdraws(*from));
    assert_eq!([(); 2].map(|()| pool.take_withdrawn()), [Some(100), None]);
    pool.withdraws(103);
    assert_eq!(pool.take_withdrawn(), Some(103));
}

#[test]
fn head_is_reached_by_as_many_as_must_agree() {
    let heads = || vec![100, 1_000_000, 102];
    assert_eq!([1, 2, 3].map(|quorum| reached_by(heads(), quorum)), [1_000_000, 102, 100]);
    assert_eq!((reached_by(vec![7], 2), reached_by(Vec::new(), 1)), (7, 0));
}
