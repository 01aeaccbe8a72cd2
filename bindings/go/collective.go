package gsel

import (
	"context"
	"time"
	"unsafe"
)

// collective.go: calls between ranks, on slices of any element type, and as data for memory of devices and for requests.
// This file needs no cgo.

// CollectiveKind is the kind of a call.
type CollectiveKind int32

// Kinds of gsel/comm.h.
const (
	KindBarrier        CollectiveKind = 0
	KindAllReduce      CollectiveKind = 1
	KindReduceScatter  CollectiveKind = 2
	KindAllGather      CollectiveKind = 3
	KindBroadcast      CollectiveKind = 4
	KindSend           CollectiveKind = 5
	KindRecv           CollectiveKind = 6
	KindReduce         CollectiveKind = 7
	KindGather         CollectiveKind = 8
	KindScatter        CollectiveKind = 9
	KindAllToAll       CollectiveKind = 10
	KindReduceScatterV CollectiveKind = 11
	KindAllGatherV     CollectiveKind = 12
	KindGatherV        CollectiveKind = 13
	KindScatterV       CollectiveKind = 14
	KindAllToAllV      CollectiveKind = 15
	KindSendRecv       CollectiveKind = 16
	KindProbe          CollectiveKind = 17
	KindIProbe         CollectiveKind = 18
)

// AnyRank and AnyTag take the first message that suits the rest of a receive.
const (
	AnyRank = -2
	AnyTag  = -1
)

// Message describes a message that a receive took or a probe found. Count is the number of elements that were sent.
type Message struct {
	Source, Tag int
	DType       DType
	Count       int
}

// Collective is a call as data, with raw pointers: the form for memory of a device, for requests and for groups. Send
// and Recv of a call that Comm.Run makes may be of Go; those of requests and groups must be of C (Alloc) or of a device.
// Fields that a kind does not use are ignored. Root is the peer of messages, Source the rank that a sendrecv receives
// from. Counts and offsets have an element for each rank; nil offsets mean packed in rank order. Received is filled by
// receives and probes.
type Collective struct {
	Kind                    CollectiveKind
	DType                   DType
	Op                      Op
	Root, Source            int
	Send, Recv              unsafe.Pointer
	Count, RecvCount        int
	SendCounts, SendOffsets []uint64
	RecvCounts, RecvOffsets []uint64
	Factor                  float64       // of ScaledSum
	Timeout                 time.Duration // 0: that of the communicator
	Label                   string        // shown in errors and recordings, cut to 15 bytes
	Tag, RecvTag            int
	Received                *Message
	Stream                  uintptr // of the accelerator; 0: that of SetStream
}

// DevicePointer is an address of a device as Collective takes it.
func DevicePointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// Run makes the call and returns when it has ended on this rank, or, with an accelerator, when it is enqueued.
func (c *Comm) Run(ctx context.Context, call *Collective) error { return c.run(ctx, call) }

// first is the address of a slice's elements; nil for an empty one.
func first[T any](s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Pointer(&s[0])
}

// sized refuses a slice that is too short for the call.
func sized(what string, have, need int) error {
	if have < need {
		return failed(ErrArg, "%s has %d elements, the call needs %d", what, have, need)
	}
	return nil
}

// extent is the number of elements that parts of these counts at these offsets take.
func extent(counts, offsets []uint64) int {
	end, packed := uint64(0), uint64(0)
	for i, n := range counts {
		at := packed
		if i < len(offsets) {
			at = offsets[i]
		}
		packed += n
		if n > 0 && at+n > end {
			end = at + n
		}
	}
	return int(end)
}

// lists refuses counts and offsets of another length than the number of ranks, which C could not notice.
func (c *Comm) lists(lists ...[]uint64) error {
	for i, list := range lists {
		if len(list) != c.size && !(i%2 == 1 && list == nil) {
			return failed(ErrArg, "counts or offsets have %d elements, the communicator has %d ranks", len(list), c.size)
		}
	}
	return nil
}

// In all calls below every rank makes the same calls in the same order with the same operation, type, count and root.
// Slices are borrowed for the call. The same slice may be both send and recv where "in place" is stated; other slices
// must not overlap. An empty call still synchronises. After ErrTimeout, ErrPeer, ErrAborted or ErrCallback the
// communicator is broken: close it, Shrink it or Resync it. Errors of a context do the same.

// Barrier returns after every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	return c.run(ctx, &Collective{Kind: KindBarrier})
}

// AllReduce reduces send[i] over all ranks into recv[i]. In place: the same slice twice.
func AllReduce[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	if len(recv) != len(send) {
		return failed(ErrArg, "recv has %d elements, send has %d", len(recv), len(send))
	}
	return c.run(ctx, &Collective{Kind: KindAllReduce, DType: DTypeOf[T](), Op: op, Send: first(send), Recv: first(recv), Count: len(send)})
}

// Reduce is AllReduce with the result on root alone; recv is ignored elsewhere.
func Reduce[T Element](ctx context.Context, c *Comm, send, recv []T, op Op, root int) error {
	if c.rank == root {
		if err := sized("recv", len(recv), len(send)); err != nil {
			return err
		}
	}
	return c.run(ctx, &Collective{Kind: KindReduce, DType: DTypeOf[T](), Op: op, Root: root, Send: first(send), Recv: first(recv), Count: len(send)})
}

// ReduceScatter reduces row r of send[world][len(recv)] over all ranks into recv on rank r. In place: recv is row rank of
// send.
func ReduceScatter[T Element](ctx context.Context, c *Comm, send, recv []T, op Op) error {
	if err := sized("send", len(send), c.size*len(recv)); err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindReduceScatter, DType: DTypeOf[T](), Op: op, Send: first(send), Recv: first(recv), Count: len(recv)})
}

// ReduceScatterV is ReduceScatter with parts of counts[rank] elements at offsets[rank] of send.
func ReduceScatterV[T Element](ctx context.Context, c *Comm, send, recv []T, counts, offsets []uint64, op Op) error {
	err := c.lists(counts, offsets)
	if err == nil {
		err = sized("send", len(send), extent(counts, offsets))
	}
	if err == nil {
		err = sized("recv", len(recv), int(counts[c.rank]))
	}
	if err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindReduceScatterV, DType: DTypeOf[T](), Op: op, Send: first(send), Recv: first(recv), RecvCounts: counts, SendOffsets: offsets})
}

// AllGather puts send of each rank into recv[world][len(send)], in rank order. In place: send is row rank of recv.
func AllGather[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	if err := sized("recv", len(recv), c.size*len(send)); err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindAllGather, DType: DTypeOf[T](), Send: first(send), Recv: first(recv), Count: len(send)})
}

// AllGatherV is AllGather with counts[rank] elements of each rank, at offsets[rank] of recv.
func AllGatherV[T Element](ctx context.Context, c *Comm, send, recv []T, counts, offsets []uint64) error {
	err := c.lists(counts, offsets)
	if err == nil {
		err = sized("recv", len(recv), extent(counts, offsets))
	}
	if err == nil {
		err = sized("send", len(send), int(counts[c.rank]))
	}
	if err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindAllGatherV, DType: DTypeOf[T](), Send: first(send), Recv: first(recv), RecvCounts: counts, RecvOffsets: offsets})
}

// Broadcast fills buffer on every rank with that of root.
func Broadcast[T Element](ctx context.Context, c *Comm, buffer []T, root int) error {
	return c.run(ctx, &Collective{Kind: KindBroadcast, DType: DTypeOf[T](), Root: root, Send: first(buffer), Recv: first(buffer), Count: len(buffer)})
}

// Gather puts send of each rank into root's recv[world][len(send)]; recv is ignored elsewhere.
func Gather[T Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	if c.rank == root {
		if err := sized("recv", len(recv), c.size*len(send)); err != nil {
			return err
		}
	}
	return c.run(ctx, &Collective{Kind: KindGather, DType: DTypeOf[T](), Root: root, Send: first(send), Recv: first(recv), Count: len(send)})
}

// GatherV is Gather with counts[rank] elements of each rank, at offsets[rank] of root's recv.
func GatherV[T Element](ctx context.Context, c *Comm, send, recv []T, counts, offsets []uint64, root int) error {
	err := c.lists(counts, offsets)
	if err == nil {
		err = sized("send", len(send), int(counts[c.rank]))
	}
	if err == nil && c.rank == root {
		err = sized("recv", len(recv), extent(counts, offsets))
	}
	if err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindGatherV, DType: DTypeOf[T](), Root: root, Send: first(send), Recv: first(recv), RecvCounts: counts, RecvOffsets: offsets})
}

// Scatter puts row r of root's send[world][len(recv)] into recv on rank r; send is ignored elsewhere.
func Scatter[T Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	if c.rank == root {
		if err := sized("send", len(send), c.size*len(recv)); err != nil {
			return err
		}
	}
	return c.run(ctx, &Collective{Kind: KindScatter, DType: DTypeOf[T](), Root: root, Send: first(send), Recv: first(recv), Count: len(recv)})
}

// ScatterV is Scatter with counts[rank] elements for each rank, from offsets[rank] of root's send.
func ScatterV[T Element](ctx context.Context, c *Comm, send, recv []T, counts, offsets []uint64, root int) error {
	err := c.lists(counts, offsets)
	if err == nil {
		err = sized("recv", len(recv), int(counts[c.rank]))
	}
	if err == nil && c.rank == root {
		err = sized("send", len(send), extent(counts, offsets))
	}
	if err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindScatterV, DType: DTypeOf[T](), Root: root, Send: first(send), Recv: first(recv), SendCounts: counts, SendOffsets: offsets})
}

// AllToAll puts row rank of send[world][n] of each rank q into row q of recv[world][n]; n is len(send) / world. Not in
// place.
func AllToAll[T Element](ctx context.Context, c *Comm, send, recv []T) error {
	if len(send)%c.size != 0 || len(recv) != len(send) {
		return failed(ErrArg, "send and recv have %d and %d elements, not the same multiple of %d ranks", len(send), len(recv), c.size)
	}
	return c.run(ctx, &Collective{Kind: KindAllToAll, DType: DTypeOf[T](), Send: first(send), Recv: first(recv), Count: len(send) / c.size})
}

// AllToAllV is AllToAll with parts of any size.
func AllToAllV[T Element](ctx context.Context, c *Comm, send []T, sendCounts, sendOffsets []uint64, recv []T, recvCounts, recvOffsets []uint64) error {
	err := c.lists(sendCounts, sendOffsets, recvCounts, recvOffsets)
	if err == nil {
		err = sized("send", len(send), extent(sendCounts, sendOffsets))
	}
	if err == nil {
		err = sized("recv", len(recv), extent(recvCounts, recvOffsets))
	}
	if err != nil {
		return err
	}
	return c.run(ctx, &Collective{Kind: KindAllToAllV, DType: DTypeOf[T](), Send: first(send), Recv: first(recv),
		SendCounts: sendCounts, SendOffsets: sendOffsets, RecvCounts: recvCounts, RecvOffsets: recvOffsets})
}

// Send sends a message with a tag, 0 or more, to peer. It may return before the receive is posted.
func Send[T Element](ctx context.Context, c *Comm, send []T, peer, tag int) error {
	return c.run(ctx, &Collective{Kind: KindSend, DType: DTypeOf[T](), Root: peer, Send: first(send), Count: len(send), Tag: tag})
}

// Recv takes the first message from source (or AnyRank) with tag (or AnyTag). recv is as long as the message or longer.
func Recv[T Element](ctx context.Context, c *Comm, recv []T, source, tag int) (Message, error) {
	var got Message
	err := c.run(ctx, &Collective{Kind: KindRecv, DType: DTypeOf[T](), Root: source, Recv: first(recv), Count: len(recv), Tag: tag, Received: &got})
	return got, err
}

// SendRecv sends to one rank and receives from another at the same time, with tag 0.
func SendRecv[T Element](ctx context.Context, c *Comm, send []T, to int, recv []T, from int) error {
	return c.run(ctx, &Collective{Kind: KindSendRecv, DType: DTypeOf[T](), Root: to, Source: from, Send: first(send), Recv: first(recv), Count: len(send), RecvCount: len(recv)})
}

// Probe waits for a message that Recv with this source and tag would take, and describes it. It is not taken.
func (c *Comm) Probe(ctx context.Context, source, tag int) (Message, error) {
	var got Message
	err := c.run(ctx, &Collective{Kind: KindProbe, Root: source, Tag: tag, Received: &got})
	return got, err
}

// IProbe is Probe without waiting: found is false if there is no such message yet.
func (c *Comm) IProbe(source, tag int) (got Message, found bool, err error) {
	err = c.run(context.Background(), &Collective{Kind: KindIProbe, Root: source, Tag: tag, Received: &got})
	return got, err == nil && got.Source != AnyRank, err
}
