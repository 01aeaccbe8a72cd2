//! Data parallelism for a training loop of one's own, over plain slices: `gsel run -n 2 -- ./data_parallel TEXT [STEPS]`
//!
//! The loop is what users of candle and burn write: tensors, gradients that backward returns, a step of the optimizer. It is
//! for one process; three places make it parallel, marked (1) to (3). The model guesses the next letter from the three before.
use gsel::{Collective, Comm, Op};

const LETTERS: usize = 27; // a to z, and everything else as one
const WINDOW: usize = 3;
const BATCH: usize = 64;

fn letters_of(path: &str) -> std::io::Result<Vec<u8>> {
    let mut letters = std::fs::read(path)?;
    for byte in letters.iter_mut() {
        let lower = byte.to_ascii_lowercase();
        *byte = if lower.is_ascii_lowercase() { lower - b'a' } else { 26 };
    }
    letters.dedup_by(|a, b| *a == 26 && *b == 26);
    Ok(letters)
}

/// Turns scores into probabilities, and returns the loss of the right one.
fn softmax(scores: &mut [f32], right: usize) -> f32 {
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - most).exp());
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
    -scores[right].ln()
}

/// A tensor of the program's: its elements are one slice.
struct Tensor {
    data: Vec<f32>,
}

fn zeros(n: usize) -> Tensor {
    Tensor { data: vec![0.0; n] }
}

/// Softmax regression: a row of scores for each letter at each place, and a bias.
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn new() -> Linear {
        let (weight, bias) = (zeros(WINDOW * LETTERS * LETTERS), zeros(LETTERS));
        Linear { weight, bias }
    }
    fn parameters(&mut self) -> [&mut Tensor; 2] {
        [&mut self.weight, &mut self.bias]
    }
    /// Mean loss of the samples, and the gradients of the parameters.
    fn backward(&self, samples: &[&[u8]]) -> (f32, [Tensor; 2]) {
        let mut gradients = [zeros(self.weight.data.len()), zeros(self.bias.data.len())];
        let mut loss = 0.0;
        for sample in samples {
            let rows = (0..WINDOW).map(|place| (place * LETTERS + sample[place] as usize) * LETTERS);
            let mut scores = self.bias.data.clone();
            for row in rows.clone() {
                scores
                    .iter_mut()
                    .zip(&self.weight.data[row..])
                    .for_each(|(score, weight)| *score += weight);
            }
            let next = sample[WINDOW] as usize;
            loss += softmax(&mut scores, next) / samples.len() as f32;
            scores[next] -= 1.0;
            for row in rows {
                let gradient = gradients[0].data[row..].iter_mut().zip(&scores);
                gradient.for_each(|(gradient, d)| *gradient += d / samples.len() as f32);
            }
            gradients[1]
                .data
                .iter_mut()
                .zip(&scores)
                .for_each(|(gradient, d)| *gradient += d / samples.len() as f32);
        }
        (loss, gradients)
    }
}

/// Averages all gradients over the ranks: each begins to travel while the ones before are still under way.
fn average(comm: &Comm, gradients: &mut [Tensor]) -> gsel::Result<()> {
    comm.scope(|scope| {
        let started: gsel::Result<Vec<_>> = gradients
            .iter_mut()
            .map(|gradient| scope.start(Collective::allreduce_in_place(&mut gradient.data, Op::AVG)))
            .collect();
        started?.into_iter().try_for_each(|request| request.wait())
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("data_parallel TEXT [STEPS]")?;
    let steps = std::env::args()
        .nth(2)
        .map_or(Ok(200), |steps| steps.parse::<usize>())?;
    let letters = letters_of(&path)?;
    let windows = letters
        .len()
        .checked_sub(WINDOW)
        .filter(|&n| n > 0)
        .ok_or("the text is too short")?;
    let mut model = Linear::new();

    // (1) Join, and begin everywhere with the parameters of rank 0.
    let comm = Comm::from_env()?;
    for parameter in model.parameters() {
        comm.broadcast(&mut parameter.data, 0)?;
    }
    // (2) This rank's part of each batch. The mean over the batch is that of the ranks' means, each weighed by its samples.
    let part = gsel::shard_range(BATCH, comm.world_size(), comm.rank());
    if BATCH < comm.world_size() {
        return Err(format!(
            "{} ranks have no more than {BATCH} samples; start fewer",
            comm.world_size()
        )
        .into());
    }
    let weight = (part.len() * comm.world_size()) as f32 / BATCH as f32;

    for step in 0..steps {
        let begin = |i: usize| (step * BATCH + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) % windows; // spread over the text
        let samples: Vec<&[u8]> = part.clone().map(|i| &letters[begin(i)..][..=WINDOW]).collect();
        let (loss, mut gradients) = model.backward(&samples);
        // (3) Gradients, and the loss that is shown, are those of the whole batch.
        gradients
            .iter_mut()
            .flat_map(|g| g.data.iter_mut())
            .for_each(|x| *x *= weight);
        average(&comm, &mut gradients)?;
        let loss = comm.allreduce_scalar(loss * weight, Op::AVG)?;
        for (parameter, gradient) in model.parameters().into_iter().zip(&gradients) {
            parameter
                .data
                .iter_mut()
                .zip(&gradient.data)
                .for_each(|(x, g)| *x -= 1.0 * g);
        }
        if comm.rank() == 0 && (step == 0 || (step + 1) % 50 == 0) {
            println!("step {}: loss {:.4}", step + 1, loss);
        }
    }
    Ok(())
}
