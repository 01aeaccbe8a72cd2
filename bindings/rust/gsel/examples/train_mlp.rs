//! Trains a small MLP that guesses the next letter of a text from the eight before it, under the strategy of a file:
//! `gsel run -n 2 --config train_mlp.toml -- ./train_mlp TEXT [STEPS]`
//!
//! Layer "hidden" is tanh(W1 x + b1), layer "guess" is softmax(W2 h + b2) with its loss. x has a one for each letter of the
//! window and zeros elsewhere, so W1 x is a sum of rows, and the input is the letters themselves. The kernels do not know how
//! many ranks there are, nor which strategy runs them.
mod text;
use gsel::*;
use std::sync::Arc;
use text::LETTERS;

const WINDOW: usize = 8;
const HIDDEN: usize = 64;

fn hidden_forward(call: &Forward<'_>) -> Outcome {
    let (w, b, letters) = (call.param::<f32>(0), call.param::<f32>(1), call.input::<i32>(0));
    for (h, window) in call.output::<f32>(0).chunks_mut(HIDDEN).zip(letters.chunks(WINDOW)) {
        h.copy_from_slice(b);
        for (place, letter) in window.iter().enumerate() {
            let row = (place * LETTERS + *letter as usize) * HIDDEN;
            h.iter_mut().zip(&w[row..row + HIDDEN]).for_each(|(h, w)| *h += w);
        }
        h.iter_mut().for_each(|h| *h = h.tanh());
    }
    Ok(())
}

fn hidden_backward(call: &Backward<'_>) -> Outcome {
    let (h, d_h, letters) = (call.output::<f32>(0), call.d_output::<f32>(0), call.input::<i32>(0));
    let (d_w, d_b) = (call.d_param(0), call.d_param(1));
    if !call.accumulate() {
        d_w.fill(0.0);
        d_b.fill(0.0);
    }
    for ((h, d_h), window) in h.chunks(HIDDEN).zip(d_h.chunks(HIDDEN)).zip(letters.chunks(WINDOW)) {
        for j in 0..HIDDEN {
            let d = d_h[j] * (1.0 - h[j] * h[j]);
            d_b[j] += d;
            for (place, letter) in window.iter().enumerate() {
                d_w[(place * LETTERS + *letter as usize) * HIDDEN + j] += d;
            }
        }
    }
    Ok(())
}

/// Probabilities of the next letter, and their loss.
fn guess(w: &[f32], b: &[f32], h: &[f32], right: usize) -> ([f32; LETTERS], f32) {
    let mut scores = [0f32; LETTERS];
    for (letter, score) in scores.iter_mut().enumerate() {
        *score = b[letter]
            + w[letter * HIDDEN..][..HIDDEN]
                .iter()
                .zip(h)
                .map(|(w, h)| w * h)
                .sum::<f32>();
    }
    let loss = text::softmax(&mut scores, right);
    (scores, loss)
}

fn guess_forward(call: &Forward<'_>) -> Outcome {
    let (w, b, h, next) = (
        call.param::<f32>(0),
        call.param::<f32>(1),
        call.input::<f32>(0),
        call.input::<i32>(1),
    );
    let losses = h
        .chunks(HIDDEN)
        .zip(next)
        .map(|(h, &next)| f64::from(guess(w, b, h, next as usize).1));
    call.output::<f64>(0)[0] = losses.sum();
    call.output::<f64>(1)[0] = next.len() as f64;
    Ok(())
}

fn guess_backward(call: &Backward<'_>) -> Outcome {
    let (w, b, h, next) = (
        call.param::<f32>(0),
        call.param::<f32>(1),
        call.input::<f32>(0),
        call.input::<i32>(1),
    );
    let (d_w, d_b, d_h) = (
        call.d_param(0),
        call.d_param(1),
        call.d_input::<f32>(0).ok_or("hidden needs a gradient")?,
    );
    if !call.accumulate() {
        d_w.fill(0.0);
        d_b.fill(0.0);
    }
    d_h.fill(0.0);
    for ((h, d_h), &next) in h.chunks(HIDDEN).zip(d_h.chunks_mut(HIDDEN)).zip(next) {
        let (mut d, _) = guess(w, b, h, next as usize);
        d[next as usize] -= 1.0;
        for (letter, d) in d.iter().enumerate() {
            d_b[letter] += d;
            for j in 0..HIDDEN {
                d_w[letter * HIDDEN + j] += d * h[j];
                d_h[j] += d * w[letter * HIDDEN + j];
            }
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("train_mlp TEXT [STEPS]")?;
    let steps = std::env::args()
        .nth(2)
        .map_or(Ok(100), |steps| steps.parse::<usize>())?;
    let letters = Arc::new(text::read(&path)?);

    gsel::register_strategies()?; // those that are linked in, in a program that brings libgsel along

    let mut model = Model::new()?;
    let w1 = model.add_param(Param::new("w1", &[(WINDOW * LETTERS) as i64, HIDDEN as i64]).normal(0.2))?;
    let b1 = model.add_param(Param::new("b1", &[HIDDEN as i64]).flags(gsel_sys::GSEL_PARAM_NO_DECAY))?;
    let w2 = model.add_param(Param::new("w2", &[LETTERS as i64, HIDDEN as i64]).normal(0.1))?;
    let b2 = model.add_param(Param::new("b2", &[LETTERS as i64]).flags(gsel_sys::GSEL_PARAM_NO_DECAY))?;
    let window = model.add_value(Value::input("window", &[WINDOW as i64]).dtype(DType::I32))?;
    let next = model.add_value(Value::input("next", &[1]).dtype(DType::I32))?;
    let h = model.add_value(Value::new("h", &[HIDDEN as i64]))?;
    let sums = [
        model.add_value(Value::scalar("loss"))?,
        model.add_value(Value::scalar("weight"))?,
    ];
    let hidden = Layer::new("hidden", &[window], &[h], &[w1, b1]);
    model.add_layer(hidden.forward(hidden_forward).backward(hidden_backward))?;
    model.add_layer(
        Layer::loss("guess", &[h, next], sums, &[w2, b2])
            .forward(guess_forward)
            .backward(guess_backward),
    )?;

    let windows = letters
        .len()
        .checked_sub(WINDOW)
        .filter(|&n| n > 0)
        .ok_or("the text is too short")?;
    let config = Config::from_env()?;
    let options = TrainerOptions::new().config(&config).data(move |request| {
        let elements = request.elements::<i32>();
        let each = elements.len() / request.sample_ids().len();
        for (sample, &id) in elements.chunks_mut(each).zip(request.sample_ids()) {
            let begin = text::begin(id, windows) + if request.value() == next.0 as usize { WINDOW } else { 0 };
            sample
                .iter_mut()
                .zip(&letters[begin..])
                .for_each(|(element, &letter)| *element = i32::from(letter));
        }
        Ok(Data::Filled)
    });
    let mut trainer = Trainer::new(Comm::from_env()?, &model, options)?;
    let is_first = trainer.comm().rank() == 0;
    for step in 1..=steps {
        let report = trainer.step()?;
        if is_first && (step == 1 || step % 20 == 0 || step == steps) {
            println!("step {}: loss {:.4}", step, report.loss);
        }
    }
    Ok(())
}
