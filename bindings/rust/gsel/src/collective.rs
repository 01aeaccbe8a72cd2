//! A call as data: which buffers, which operation, which ranks. [`Comm`](crate::Comm) runs it, starts it, or explains it.
use crate::comm::bound;
use crate::error::{Code, Error};
use crate::{number, text, DType, DevicePtr, Element, Op, Result};
use gsel_sys as sys;
use std::marker::PhantomData;
use std::os::raw::c_void;
use std::time::Duration;

/// Elements that a call reads, borrowed for `'a`.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    data: *const c_void,
    len: usize,
    dtype: DType,
    borrowed: PhantomData<&'a ()>,
}

/// Elements that a call writes, borrowed for `'a`.
pub struct Target<'a> {
    data: *mut c_void,
    len: usize,
    dtype: DType,
    borrowed: PhantomData<&'a mut ()>,
}

impl<'a> Source<'a> {
    /// Elements of the host.
    pub fn new<T: Element>(slice: &'a [T]) -> Source<'a> {
        Source {
            data: slice.as_ptr() as *const c_void,
            len: slice.len(),
            dtype: T::DTYPE,
            borrowed: PhantomData,
        }
    }
    /// Memory of the communicator's accelerator.
    ///
    /// # Safety
    /// The memory is readable until the communicator's stream has passed the call, and work on other streams that writes
    /// it is ordered before.
    pub unsafe fn device<D: DevicePtr + ?Sized>(memory: &'a D) -> Source<'a> {
        Source {
            data: memory.device_ptr(),
            len: memory.elements(),
            dtype: D::Element::DTYPE,
            borrowed: PhantomData,
        }
    }
}

impl<'a> Target<'a> {
    /// Elements of the host.
    pub fn new<T: Element>(slice: &'a mut [T]) -> Target<'a> {
        Target {
            data: slice.as_mut_ptr() as *mut c_void,
            len: slice.len(),
            dtype: T::DTYPE,
            borrowed: PhantomData,
        }
    }
    /// Memory of the communicator's accelerator.
    ///
    /// # Safety
    /// The memory is writable until the communicator's stream has passed the call, nothing else uses it until then, and
    /// work on other streams that uses it is ordered before.
    pub unsafe fn device<D: DevicePtr + ?Sized>(memory: &'a mut D) -> Target<'a> {
        Target {
            data: memory.device_ptr(),
            len: memory.elements(),
            dtype: D::Element::DTYPE,
            borrowed: PhantomData,
        }
    }
}

impl<'a, T: Element> From<&'a [T]> for Source<'a> {
    fn from(slice: &'a [T]) -> Source<'a> {
        Source::new(slice)
    }
}
impl<'a, T: Element> From<&'a Vec<T>> for Source<'a> {
    fn from(vec: &'a Vec<T>) -> Source<'a> {
        Source::new(vec)
    }
}
impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Source<'a> {
    fn from(array: &'a [T; N]) -> Source<'a> {
        Source::new(array)
    }
}
impl<'a, T: Element> From<&'a mut [T]> for Target<'a> {
    fn from(slice: &'a mut [T]) -> Target<'a> {
        Target::new(slice)
    }
}
impl<'a, T: Element> From<&'a mut Vec<T>> for Target<'a> {
    fn from(vec: &'a mut Vec<T>) -> Target<'a> {
        Target::new(vec)
    }
}
impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for Target<'a> {
    fn from(array: &'a mut [T; N]) -> Target<'a> {
        Target::new(array)
    }
}

/// Parts of a buffer, one for each rank: `counts[world_size]` elements at `offsets[world_size]`, or packed in rank order.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Elements of each rank's part.
    pub counts: &'a [u64],
    /// Where each part begins, in elements; `None`: packed in rank order.
    pub offsets: Option<&'a [u64]>,
}

impl<'a> Parts<'a> {
    /// Parts that follow one another.
    pub fn packed(counts: &'a [u64]) -> Parts<'a> {
        Parts { counts, offsets: None }
    }
    fn offset_pointer(&self) -> *const u64 {
        self.offsets.map_or(std::ptr::null(), <[u64]>::as_ptr)
    }
    /// Whether all parts lie within `len` elements and there is one for each of n ranks.
    fn fits(&self, n: usize, len: usize, what: &str) -> Result<()> {
        if self.counts.len() != n || self.offsets.map_or(false, |offsets| offsets.len() != n) {
            return Err(wrong(format!(
                "{}: expected a part for each of {} ranks, got {} counts",
                what,
                n,
                self.counts.len()
            )));
        }
        let mut packed = 0u64;
        for i in 0..n {
            let begin = self.offsets.map_or(packed, |offsets| offsets[i]);
            let end = begin.checked_add(self.counts[i]).filter(|&end| end <= len as u64);
            packed = end.ok_or_else(|| {
                wrong(format!(
                    "{}: part {} of {} elements at {} is not within {} elements",
                    what, i, self.counts[i], begin, len
                ))
            })?;
        }
        Ok(())
    }
}

/// A message that a receive took or a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Rank that sent it.
    pub source: usize,
    /// Tag of the send.
    pub tag: i32,
    /// Type of the elements.
    pub dtype: DType,
    /// Elements that were sent.
    pub count: usize,
}

impl Message {
    pub(crate) fn of(message: &sys::gsel_message) -> Message {
        Message {
            source: message.source as usize,
            tag: message.tag,
            dtype: DType(message.dtype),
            count: message.count as usize,
        }
    }
}

fn wrong(message: String) -> Error {
    Error::new(Code::ARG, message)
}

/// A collective or message with its arguments, borrowed for `'a`.
///
/// Lengths are checked when the call is made, against the number of ranks: [`Code::ARG`], and nothing happened.
pub struct Collective<'a> {
    pub(crate) call: sys::gsel_collective,
    send: Option<Source<'a>>,
    recv: Option<Target<'a>>,
    send_parts: Option<Parts<'a>>,
    recv_parts: Option<Parts<'a>>,
}

/// Any rank as the source of a message.
pub const ANY_RANK: i32 = sys::GSEL_ANY_RANK;
/// Any tag of a message.
pub const ANY_TAG: i32 = sys::GSEL_ANY_TAG;

impl<'a> Collective<'a> {
    pub(crate) fn new(kind: i32, send: Option<Source<'a>>, recv: Option<Target<'a>>) -> Collective<'a> {
        let mut call = sys::sized::<sys::gsel_collective>();
        call.kind = kind;
        if let Some(send) = &send {
            call.send = send.data;
            call.dtype = send.dtype.0;
        }
        if let Some(recv) = &recv {
            call.recv = recv.data;
            call.dtype = recv.dtype.0;
        }
        Collective {
            call,
            send,
            recv,
            send_parts: None,
            recv_parts: None,
        }
    }

    /// Returns after every rank has called it.
    pub fn barrier() -> Self {
        Self::new(sys::GSEL_COLLECTIVE_BARRIER, None, None)
    }
    /// `recv[count]` = op over ranks of `send[count]`.
    pub fn allreduce(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, op: Op<'a>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLREDUCE, Some(send.into()), Some(recv.into())).op(op)
    }
    /// `buffer[count]` = op over ranks of `buffer[count]`.
    pub fn allreduce_in_place(buffer: impl Into<Target<'a>>, op: Op<'a>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLREDUCE, None, Some(buffer.into())).op(op)
    }
    /// `recv[count]` on root = op over ranks of `send[count]`. Other ranks pass an empty `recv`.
    pub fn reduce(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, op: Op<'a>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_REDUCE, Some(send.into()), Some(recv.into()))
            .op(op)
            .root(root)
    }
    /// The same with root's result in the place of its input; the buffers of other ranks are read alone.
    pub fn reduce_in_place(buffer: impl Into<Target<'a>>, op: Op<'a>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_REDUCE, None, Some(buffer.into()))
            .op(op)
            .root(root)
    }
    /// `recv[count]` on rank r = op over ranks of row r of their `send[world_size][count]`.
    pub fn reduce_scatter(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, op: Op<'a>) -> Self {
        Self::new(
            sys::GSEL_COLLECTIVE_REDUCE_SCATTER,
            Some(send.into()),
            Some(recv.into()),
        )
        .op(op)
    }
    /// The same within `buffer[world_size][count]`: row `rank` is the result.
    pub fn reduce_scatter_in_place(buffer: impl Into<Target<'a>>, op: Op<'a>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_REDUCE_SCATTER, None, Some(buffer.into())).op(op)
    }
    /// The same with parts of any size of `send`, the same on every rank; `recv` has this rank's.
    pub fn reduce_scatterv(
        send: impl Into<Source<'a>>,
        parts: Parts<'a>,
        recv: impl Into<Target<'a>>,
        op: Op<'a>,
    ) -> Self {
        let mut call = Self::new(
            sys::GSEL_COLLECTIVE_REDUCE_SCATTERV,
            Some(send.into()),
            Some(recv.into()),
        )
        .op(op);
        call.call.recv_counts = parts.counts.as_ptr();
        call.call.send_offsets = parts.offset_pointer();
        call.send_parts = Some(parts);
        call
    }
    /// `recv[world_size][count]` = `send[count]` of each rank, in rank order.
    pub fn allgather(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLGATHER, Some(send.into()), Some(recv.into()))
    }
    /// The same within `buffer[world_size][count]`: row `rank` is the input.
    pub fn allgather_in_place(buffer: impl Into<Target<'a>>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLGATHER, None, Some(buffer.into()))
    }
    /// The same with parts of any size of `recv`.
    pub fn allgatherv(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, parts: Parts<'a>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLGATHERV, Some(send.into()), Some(recv.into())).recv_parts(parts)
    }
    /// `buffer[count]` on every rank = that of root.
    pub fn broadcast(buffer: impl Into<Target<'a>>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_BROADCAST, None, Some(buffer.into())).root(root)
    }
    /// `recv[world_size][count]` on root = `send[count]` of each rank. Other ranks pass an empty `recv`.
    pub fn gather(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_GATHER, Some(send.into()), Some(recv.into())).root(root)
    }
    /// The same with parts of any size of root's `recv`.
    pub fn gatherv(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, parts: Parts<'a>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_GATHERV, Some(send.into()), Some(recv.into()))
            .recv_parts(parts)
            .root(root)
    }
    /// `recv[count]` on rank r = row r of root's `send[world_size][count]`. Other ranks pass an empty `send`.
    pub fn scatter(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_SCATTER, Some(send.into()), Some(recv.into())).root(root)
    }
    /// The same with parts of any size of root's `send`.
    pub fn scatterv(send: impl Into<Source<'a>>, parts: Parts<'a>, recv: impl Into<Target<'a>>, root: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_SCATTERV, Some(send.into()), Some(recv.into()))
            .send_parts(parts)
            .root(root)
    }
    /// `recv[q][count]` on rank r = row r of `send[world_size][count]` of rank q.
    pub fn alltoall(send: impl Into<Source<'a>>, recv: impl Into<Target<'a>>) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLTOALL, Some(send.into()), Some(recv.into()))
    }
    /// The same with parts of any size: `send_parts.counts[q]` here equals `recv_parts.counts[rank]` on rank q.
    pub fn alltoallv(
        send: impl Into<Source<'a>>,
        send_parts: Parts<'a>,
        recv: impl Into<Target<'a>>,
        recv_parts: Parts<'a>,
    ) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_ALLTOALLV, Some(send.into()), Some(recv.into()))
            .send_parts(send_parts)
            .recv_parts(recv_parts)
    }
    /// Sends to `peer`.
    pub fn send(send: impl Into<Source<'a>>, peer: usize) -> Self {
        Self::new(sys::GSEL_COLLECTIVE_SEND, Some(send.into()), None).root(peer)
    }
    /// Receives from rank `source`, or [`ANY_RANK`]. `recv` is as long as the message or longer.
    pub fn recv(recv: impl Into<Target<'a>>, source: i32) -> Self {
        let mut call = Self::new(sys::GSEL_COLLECTIVE_RECV, None, Some(recv.into()));
        call.call.root = source;
        call
    }
    /// Sends to rank `to` and receives from rank `from` at the same time.
    pub fn sendrecv(send: impl Into<Source<'a>>, to: usize, recv: impl Into<Target<'a>>, from: usize) -> Self {
        let mut call = Self::new(sys::GSEL_COLLECTIVE_SENDRECV, Some(send.into()), Some(recv.into())).root(to);
        call.call.source = number(from);
        call
    }

    fn op(mut self, op: Op<'a>) -> Self {
        self.call.op = op.0;
        self
    }
    fn root(mut self, root: usize) -> Self {
        self.call.root = number(root);
        self
    }
    fn send_parts(mut self, parts: Parts<'a>) -> Self {
        self.call.send_counts = parts.counts.as_ptr();
        self.call.send_offsets = parts.offset_pointer();
        self.send_parts = Some(parts);
        self
    }
    fn recv_parts(mut self, parts: Parts<'a>) -> Self {
        self.call.recv_counts = parts.counts.as_ptr();
        self.call.recv_offsets = parts.offset_pointer();
        self.recv_parts = Some(parts);
        self
    }
    /// Bound on this call; without it that of the communicator holds. Zero is the shortest bound that there is, a nanosecond.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout_s = bound(timeout);
        self
    }
    /// The stream of the communicator's accelerator on which this call is enqueued, such as a `CUstream`; without it that
    /// of [`Comm::set_stream`](crate::Comm::set_stream).
    ///
    /// # Safety
    /// The stream lives until the call has ended.
    pub unsafe fn stream(mut self, stream: *mut c_void) -> Self {
        self.call.stream = stream;
        self
    }
    /// Shown in errors and recordings, cut to 15 bytes.
    pub fn label(mut self, label: &'a str) -> Self {
        self.call.label = text::given(label);
        self
    }
    /// This rank's factor of [`Op::SCALED_SUM`]; not 0.
    pub fn factor(mut self, factor: f64) -> Self {
        self.call.factor = factor;
        self
    }
    /// Tag of a message; for a sendrecv, that of the message sent.
    pub fn tag(mut self, tag: i32) -> Self {
        self.call.tag = tag;
        self
    }
    /// For a sendrecv, the tag of the message received.
    pub fn recv_tag(mut self, tag: i32) -> Self {
        self.call.recv_tag = tag;
        self
    }
    /// Whether it is a message, which can be cancelled alone.
    pub(crate) fn is_message(&self) -> bool {
        matches!(
            self.call.kind,
            sys::GSEL_COLLECTIVE_SEND | sys::GSEL_COLLECTIVE_RECV | sys::GSEL_COLLECTIVE_SENDRECV
        )
    }

    /// Fills in counts and the in-place form for `rank` of `n`, and checks that C stays within the buffers.
    pub(crate) fn finish(mut self, rank: usize, n: usize) -> Result<sys::gsel_collective> {
        let call = &mut self.call;
        let send = self.send.as_ref().map_or(0, |send| send.len);
        let recv = self.recv.as_ref().map_or(0, |recv| recv.len);
        if let (Some(a), Some(b)) = (&self.send, &self.recv) {
            if a.dtype != b.dtype {
                return Err(wrong(format!(
                    "send has elements of {}, recv of {}",
                    a.dtype.name(),
                    b.dtype.name()
                )));
            }
        }
        let is_root = call.root == number(rank);
        let in_place = self.send.is_none();
        let element = DType(call.dtype).bytes();
        let expect = |what: &str, expected: usize, got: usize| {
            if expected == got {
                return Ok(());
            }
            Err(wrong(format!("{} has {} elements, expected {}", what, got, expected)))
        };
        let rows = |what: &str, len: usize| {
            if len % n == 0 {
                return Ok(len / n);
            }
            Err(wrong(format!(
                "{} has {} elements, expected a multiple of the {} ranks",
                what, len, n
            )))
        };
        // Of an in-place call of rows, the address of this rank's row.
        let row =
            |base: *const c_void, count: usize| (base as *const u8).wrapping_add(rank * count * element) as *mut c_void;
        let mut count = recv;
        match call.kind {
            sys::GSEL_COLLECTIVE_BARRIER => {}
            sys::GSEL_COLLECTIVE_ALLREDUCE | sys::GSEL_COLLECTIVE_BROADCAST | sys::GSEL_COLLECTIVE_REDUCE
                if in_place =>
            {
                call.send = call.recv
            }
            sys::GSEL_COLLECTIVE_ALLREDUCE => expect("recv", send, recv)?,
            sys::GSEL_COLLECTIVE_REDUCE => {
                count = send;
                if is_root {
                    expect("recv", send, recv)?;
                }
            }
            sys::GSEL_COLLECTIVE_REDUCE_SCATTER if in_place => {
                count = rows("buffer", recv)?;
                call.send = call.recv;
                call.recv = row(call.send, count);
            }
            sys::GSEL_COLLECTIVE_REDUCE_SCATTER => expect("send", recv * n, send)?,
            sys::GSEL_COLLECTIVE_ALLGATHER if in_place => {
                count = rows("buffer", recv)?;
                call.send = row(call.recv, count);
            }
            sys::GSEL_COLLECTIVE_ALLGATHER => {
                count = send;
                expect("recv", send * n, recv)?;
            }
            sys::GSEL_COLLECTIVE_ALLTOALL => {
                count = rows("send", send)?;
                expect("recv", send, recv)?;
            }
            sys::GSEL_COLLECTIVE_GATHER => {
                count = send;
                if is_root {
                    expect("recv", send * n, recv)?;
                }
            }
            sys::GSEL_COLLECTIVE_SCATTER if is_root => expect("send", recv * n, send)?,
            sys::GSEL_COLLECTIVE_SEND => count = send,
            sys::GSEL_COLLECTIVE_RECV => {}
            sys::GSEL_COLLECTIVE_SENDRECV => {
                count = send;
                call.recv_count = recv as u64;
            }
            _ => {}
        }
        call.count = count as u64;
        let mine = |parts: &Parts<'_>| parts.counts.get(rank).map_or(usize::MAX, |&count| count as usize);
        match call.kind {
            sys::GSEL_COLLECTIVE_REDUCE_SCATTERV => {
                let parts = self.send_parts.as_ref().expect("parts");
                parts.fits(n, send, "send")?;
                expect("recv", mine(parts), recv)?;
            }
            sys::GSEL_COLLECTIVE_ALLGATHERV | sys::GSEL_COLLECTIVE_GATHERV => {
                let parts = self.recv_parts.as_ref().expect("parts");
                let reads = call.kind == sys::GSEL_COLLECTIVE_ALLGATHERV || is_root;
                parts.fits(n, if reads { recv } else { usize::MAX }, "recv")?;
                expect("send", mine(parts), send)?;
            }
            sys::GSEL_COLLECTIVE_SCATTERV => {
                let parts = self.send_parts.as_ref().expect("parts");
                parts.fits(n, if is_root { send } else { usize::MAX }, "send")?;
                expect("recv", mine(parts), recv)?;
            }
            sys::GSEL_COLLECTIVE_ALLTOALLV => {
                self.send_parts.as_ref().expect("parts").fits(n, send, "send")?;
                self.recv_parts.as_ref().expect("parts").fits(n, recv, "recv")?;
            }
            _ => {}
        }
        Ok(self.call)
    }
}
