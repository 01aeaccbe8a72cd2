//! What a trainer holds: saved in the background and loaded, read and written by name, and taken along to other ranks.
//!
//! Steps have 6 samples on any number of ranks, so w is 3 after one step, then 4.5 and 5.25.
#[path = "support/distance.rs"]
mod distance;
mod support;
use distance::*;
use gsel::*;
use std::borrow::Borrow;
use support::ranks;

const SAMPLES: usize = 6;

/// A folder that is removed with what is in it.
struct Folder(std::path::PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gsel-rust-{}-{}", name, std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn options(config: &Config) -> TrainerOptions<'_> {
    TrainerOptions::new()
        .config(config)
        .data(|request| fill(request, SAMPLES))
}

fn trainer<C: Borrow<Comm>>(comm: C) -> (Trainer<C>, ParamId) {
    let (model, w, _) = described(forward).unwrap();
    (Trainer::new(comm, &model, options(&config(SAMPLES))).unwrap(), w)
}

fn value<C: Borrow<Comm>>(trainer: &mut Trainer<C>, w: ParamId) -> f32 {
    let mut value = [0f32];
    trainer.read_param(w, &mut value).unwrap();
    value[0]
}

#[test]
fn a_save_in_the_background_is_loaded() {
    let folder = std::sync::Arc::new(Folder::new("save"));
    ranks(2, move |comm| {
        let rank = comm.rank() as u8;
        let (mut first, w) = trainer(&comm);
        first
            .add_state("data/position", vec![1u8, 2, 3], StateScope::Shared)
            .unwrap();
        first.add_state("seed", vec![rank], StateScope::OfRank).unwrap();
        let error = first.add_state("seed", vec![7u8], StateScope::OfRank).unwrap_err();
        assert!(error.code == Code::ARG && error.message.contains("seed"), "{:?}", error);
        first.step().unwrap();
        let state = first.state().unwrap();
        let own = state.own().unwrap();
        assert_eq!(own.len(), 2);
        let of = |i: usize| (own[i].name, own[i].scope, own[i].data);
        assert_eq!(of(0), ("data/position", StateScope::Shared, &[1u8, 2, 3][..]));
        assert_eq!(of(1), ("seed", StateScope::OfRank, &[rank][..]));
        drop(state);
        assert_eq!(first.save_state(), SaveState::None);
        assert!(first.save_wait().unwrap().is_none());
        let begun = first.save_begin(folder.path(), &CheckpointOptions::new()).unwrap();
        assert!(begun.step == 1 && begun.bytes == 0 && begun.copy_seconds <= begun.blocked_seconds);
        first.added_state_mut("data/position").unwrap()[0] = 9; // the copy is taken
        let seen = first.step().unwrap().save_state();
        assert!(seen == SaveState::UnderWay || seen == SaveState::Done, "{:?}", seen);
        let saved = first.save_wait().unwrap().unwrap();
        assert!(saved.step == 1 && saved.seconds >= saved.copy_seconds, "{:?}", saved);
        assert_eq!(first.save_state(), SaveState::None);
        drop(first);

        let (mut second, _) = trainer(&comm);
        second
            .add_state("data/position", vec![0u8; 3], StateScope::Shared)
            .unwrap();
        second.add_state("seed", [9u8], StateScope::OfRank).unwrap();
        assert_eq!(second.load(folder.path()).unwrap().step, 1);
        assert_eq!(value(&mut second, w), 3.0);
        assert_eq!(second.added_state("data/position"), Some(&[1u8, 2, 3][..]));
        assert_eq!(second.added_state("seed"), Some(&[rank][..]));
        assert_eq!(second.added_state("other"), None);
        let mut checkpoint = Checkpoint::open(folder.path()).unwrap();
        assert_eq!(checkpoint.info().unwrap().ranks, 2);
        let own = checkpoint.own().unwrap();
        assert_eq!(
            (own[0].name.as_str(), own[0].scope),
            ("data/position", StateScope::Shared)
        );
        assert_eq!((own[0].pieces.len(), own[0].pieces[0].bytes), (1, 3));
        assert_eq!((own[1].scope, own[1].pieces.len()), (StateScope::OfRank, 2));
        let last = &own[1].pieces[1];
        assert_eq!(
            (last.file.as_str(), last.key.as_str()),
            ("rank-00001.safetensors", "user:seed")
        );
        second.step().unwrap();
        assert_eq!(value(&mut second, w), 4.5);

        assert_eq!(
            second.save_begin("", &CheckpointOptions::new()).unwrap_err().code,
            Code::ARG
        );
    });
}

#[test]
fn state_is_read_and_written_by_name() {
    ranks(2, |comm| {
        let (mut trainer, w) = trainer(&comm);
        trainer.step().unwrap();
        let mut state = trainer.state().unwrap();
        let entries = state.entries().unwrap();
        assert_eq!(entries.len(), state.count());
        let i = entries.iter().position(|entry| entry.name == "param:w").unwrap();
        let entry = entries[i].clone();
        assert_eq!((entry.role, entry.param, entry.dtype), ("param", w, DType::F32));
        assert_eq!(
            (&entry.shape[..], entry.element_count(), entry.pieces),
            (&[1][..], 1, 1)
        );
        let whole = StateRun {
            whole: 0,
            local: 0,
            count: 1,
        };
        assert_eq!(state.runs(i, 0).unwrap(), [whole]);
        let mut read = [0f32];
        state.read_piece(i, 0, 0, &mut read).unwrap();
        assert_eq!(read, [3.0]);
        if comm.rank() == 0 {
            state.read(i, 0, &mut read).unwrap();
        } else {
            state.read_for_others(i, 0, 1).unwrap();
        }
        assert_eq!(read, [3.0]);
        assert_eq!(state.read(i, 1, &mut read).unwrap_err().code, Code::ARG);
        assert_eq!(state.runs(i, 1).unwrap_err().code, Code::ARG);
        assert_eq!(state.entry(99).unwrap_err().code, Code::ARG);
        assert_eq!(state.write(i, 0, &[2.0]).unwrap(), 1);
        let mut numbers = state.numbers().unwrap();
        assert_eq!((numbers.step, numbers.updates, numbers.learning_rate), (1, 1, None));
        numbers.step = 7;
        numbers.learning_rate = Some(0.0);
        state.set_numbers(&numbers).unwrap();
        assert_eq!(state.numbers().unwrap(), numbers);
        numbers.updates = 8;
        assert_eq!(state.set_numbers(&numbers).unwrap_err().code, Code::ARG);
        drop(state);
        let report = trainer.step().unwrap();
        assert_eq!((report.step, report.learning_rate), (7, 0.0));
        assert_eq!(value(&mut trainer, w), 2.0);
    });
}

#[test]
fn a_trainer_goes_on_with_fewer_ranks_and_with_more() {
    ranks(3, |whole| {
        let (model, ..) = described(forward).unwrap();
        let (mut first, w) = trainer(whole.dup().unwrap());
        first
            .add_state("mine", vec![whole.rank() as u8], StateScope::OfRank)
            .unwrap();
        first.step().unwrap();
        let pair = whole.split((whole.rank() < 2).then(|| 0), 0).unwrap();
        let (mut last, report) = match pair {
            Some(pair) => {
                // What does not fit leaves the trainer as it was.
                let wrong = Config::parse("[mesh]\ntensor = 5\n[train]\nbatch = 6\n", "gsel.toml").unwrap();
                let failure = first.rebind(pair, RebindOptions::new().config(&wrong)).err().unwrap();
                assert_eq!(failure.to_string(), failure.error.message);
                let mut first = failure.trainer;
                assert_eq!(value(&mut first, w), 3.0);

                let (mut second, report) = first.rebind(failure.comm, RebindOptions::new()).unwrap();
                assert_eq!((report.step, report.lost_steps), (1, 0));
                assert_eq!(report.source, RebindSource::Ranks);
                assert_eq!(second.comm().world_size(), 2);
                assert_eq!(second.added_state("mine"), Some(&[whole.rank() as u8][..]));
                second.step().unwrap();
                assert_eq!(value(&mut second, w), 4.5);
                second.rebind(&whole, RebindOptions::new()).unwrap()
            }
            None => {
                drop(first);
                Trainer::join(&whole, &model, options(&config(SAMPLES)), None).unwrap()
            }
        };
        assert_eq!((report.step, report.source), (2, RebindSource::Ranks));
        assert!(whole.rank() < 2 || report.bytes_moved > 0);
        assert_eq!(last.step().unwrap().step, 2);
        assert_eq!(value(&mut last, w), 5.25);
    });
}
