//! The suite for each protocol of this crate.

use super::Rig;
use crate::{Endpoint, Tuning};

fn tcp_on(host: &str) -> Option<Rig> {
    // Without IPv6 there is nothing to try.
    std::net::TcpListener::bind((host, 0)).ok()?;
    let endpoint = Endpoint::Tcp {
        host: host.to_owned(),
        port: 0,
    };
    Some(Rig {
        endpoint,
        tuning: Tuning::default(),
        keep: Box::new(()),
    })
}

mod tcp_v4 {
    fn rig() -> Option<super::Rig> {
        super::tcp_on("127.0.0.1")
    }

    crate::conformance_suite!(rig);
}

mod tcp_v6 {
    fn rig() -> Option<super::Rig> {
        super::tcp_on("::1")
    }

    crate::conformance_suite!(rig);
}

mod shm {
    use super::{Endpoint, Rig, Tuning};

    // An `Option` like the other rigs.
    #[allow(clippy::unnecessary_wraps)]
    fn rig() -> Option<Rig> {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Shm {
            directory: folder.path().to_owned(),
            name: "peer".into(),
        };
        Some(Rig {
            endpoint,
            tuning: Tuning::default(),
            keep: Box::new(folder),
        })
    }

    crate::conformance_suite!(rig);
}

mod hsl {
    use super::{Endpoint, Rig, Tuning};
    use crate::HslTuning;
    use crate::hsl::Mode;

    fn rig_in(mode: Mode) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Hsl {
            directory: folder.path().to_owned(),
            name: "peer".into(),
        };
        let tuning = Tuning {
            hsl: HslTuning {
                mode,
                ..HslTuning::default()
            },
            ..Tuning::default()
        };
        Rig {
            endpoint,
            tuning,
            keep: Box::new(folder),
        }
    }

    mod adaptive {
        // An `Option` like the other rigs.
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_in(super::Mode::Adaptive))
        }

        crate::conformance_suite!(rig);
    }

    mod interrupt {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_in(super::Mode::Interrupt))
        }

        crate::conformance_suite!(rig);
    }

    mod polling {
        #[allow(clippy::unnecessary_wraps)]
        fn rig() -> Option<super::Rig> {
            Some(super::rig_in(super::Mode::Polling))
        }

        crate::conformance_suite!(rig);
    }
}
