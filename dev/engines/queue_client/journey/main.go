// The way of an item through a queue and its dead queue, by the released Go client.
//
// Takes the server's address, and prints a line for each step that came out as it should. Ends with 1 at the first that did not.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kapetan-io/querator"
	pb "github.com/kapetan-io/querator/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func main() {
	client, err := querator.NewClient(querator.ClientConfig{Endpoint: os.Args[1]})
	must("connect", err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	define(ctx, client)
	work(ctx, client)
	die(ctx, client)
	schedule(ctx, client)
	storage(ctx, client)
	refusals(ctx, client)

	must("delete", client.QueuesDelete(ctx, &pb.QueuesDeleteRequest{QueueName: "orders"}))
	must("delete the dead queue", client.QueuesDelete(ctx, &pb.QueuesDeleteRequest{QueueName: "orders-dead"}))
}

// Queues are created, changed, looked at and listed.
func define(ctx context.Context, client *querator.Client) {
	for _, queue := range []*pb.QueueInfo{
		{QueueName: "orders-dead", LeaseTimeout: "1m", ExpireTimeout: "24h", RequestedPartitions: 1},
		{QueueName: "orders", LeaseTimeout: "1m", ExpireTimeout: "24h", RequestedPartitions: 1, MaxAttempts: 1, DeadQueue: "orders-dead"},
	} {
		must("create "+queue.QueueName, client.QueuesCreate(ctx, queue))
	}
	must("update", client.QueuesUpdate(ctx, &pb.QueueInfo{QueueName: "orders", Reference: "shop"}))
	var info pb.QueueInfo
	must("info", client.QueuesInfo(ctx, &pb.QueuesInfoRequest{QueueName: "orders"}, &info))
	same("info", fmt.Sprint(info.DeadQueue, info.Reference, info.LeaseTimeout, info.ExpireTimeout, info.MaxAttempts),
		fmt.Sprint("orders-dead", "shop", "1m0s", "24h0m0s", 1))
	var list pb.QueuesListResponse
	must("list", client.QueuesList(ctx, &list, &querator.ListOptions{}))
	same("list", names(list.Items), "orders orders-dead")
}

// An item is produced, leased and completed.
func work(ctx context.Context, client *querator.Client) {
	produce(ctx, client, &pb.QueueProduceItem{Reference: "o-1", Kind: "order", Encoding: "json", Bytes: []byte(`{"id": 1}`)})
	leased := lease(ctx, client, "orders")
	item := leased.Items[0]
	same("lease", fmt.Sprint(item.Reference, item.Kind, item.Encoding, string(item.Bytes), item.Attempts, len(item.Id)),
		fmt.Sprint("o-1", "order", "json", `{"id": 1}`, 1, 27))
	var stats pb.QueueStatsResponse
	must("stats", client.QueueStats(ctx, &pb.QueueStatsRequest{QueueName: "orders"}, &stats))
	partition := stats.LogicalQueues[0].Partitions[0]
	same("stats", fmt.Sprint(partition.Total, partition.TotalLeased), "1 1")
	must("complete", client.QueueComplete(ctx, &pb.QueueCompleteRequest{
		QueueName: "orders", Partition: leased.Partition, Ids: querator.CollectIDs(leased.Items), RequestTimeout: "5s"}))
	same("items after complete", len(stored(ctx, client, "orders")), 0)
}

// An item fails more often than it may, and is in the dead queue under a new id.
func die(ctx context.Context, client *querator.Client) {
	produce(ctx, client, &pb.QueueProduceItem{Reference: "o-2", Utf8: "bad"})
	last := ""
	for attempt := 1; attempt <= 2; attempt++ {
		leased := lease(ctx, client, "orders")
		same("attempts", int(leased.Items[0].Attempts), attempt)
		last = leased.Items[0].Id
		must("retry", client.QueueRetry(ctx, &pb.QueueRetryRequest{
			QueueName: "orders", Partition: leased.Partition, Items: []*pb.QueueRetryItem{{Id: last}}}))
	}
	dead := stored(ctx, client, "orders-dead")
	same("dead items", len(dead), 1)
	same("dead item", fmt.Sprint(dead[0].SourceId == last, dead[0].Id != last, dead[0].Attempts, string(dead[0].Payload)),
		fmt.Sprint(true, true, 0, "bad"))
	same("items after death", len(stored(ctx, client, "orders")), 0)

	produce(ctx, client, &pb.QueueProduceItem{Utf8: "hopeless"})
	leased := lease(ctx, client, "orders")
	must("retry as dead", client.QueueRetry(ctx, &pb.QueueRetryRequest{
		QueueName: "orders", Partition: leased.Partition, Items: []*pb.QueueRetryItem{{Id: leased.Items[0].Id, Dead: true}}}))
	same("told to be dead", len(stored(ctx, client, "orders-dead")), 2)
}

// A lease that waits is woken by an item that comes due.
func schedule(ctx context.Context, client *querator.Client) {
	due := time.Now().Add(400 * time.Millisecond)
	produce(ctx, client, &pb.QueueProduceItem{Utf8: "later", EnqueueAt: timestamppb.New(due)})
	var scheduled pb.StorageItemsListResponse
	must("scheduled list", client.StorageScheduledList(ctx, "orders", 0, &scheduled, &querator.ListOptions{Limit: 10}))
	same("scheduled list", len(scheduled.Items), 1)
	leased := lease(ctx, client, "orders")
	same("scheduled item", string(leased.Items[0].Bytes), "later")
	same("not before its time", time.Now().Before(due), false)
	must("complete", client.QueueComplete(ctx, &pb.QueueCompleteRequest{
		QueueName: "orders", Partition: leased.Partition, Ids: querator.CollectIDs(leased.Items), RequestTimeout: "5s"}))
}

// Items are imported, once, and deleted.
func storage(ctx context.Context, client *querator.Client) {
	request := &pb.StorageItemsImportRequest{QueueName: "orders", Partition: 0,
		Items: []*pb.StorageItem{{SourceId: "2ABCDEFGHIJKLMNOPQRSTUVWXYZ", Payload: []byte("brought")}}}
	var imported pb.StorageItemsImportResponse
	must("import", client.StorageItemsImport(ctx, request, &imported))
	must("import again", client.StorageItemsImport(ctx, request, &imported))
	items := stored(ctx, client, "orders")
	same("imported once", len(items), 1)
	same("source id", items[0].SourceId, "2ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	must("delete items", client.StorageItemsDelete(ctx, &pb.StorageItemsDeleteRequest{
		QueueName: "orders", Partition: 0, Ids: []string{items[0].Id}}))
	must("clear", client.QueueClear(ctx, &pb.QueueClearRequest{QueueName: "orders", Queue: true, Destructive: true}))
}

// What is refused is told in the words that the client's users know.
func refusals(ctx context.Context, client *querator.Client) {
	var leased pb.QueueLeaseResponse
	refused("empty queue", client.QueueLease(ctx, &pb.QueueLeaseRequest{
		QueueName: "orders", BatchSize: 1, ClientId: "go", RequestTimeout: "50ms"}, &leased), querator.MsgRequestTimeout)
	refused("no such queue", client.QueueProduce(ctx, &pb.QueueProduceRequest{
		QueueName: "nope", RequestTimeout: "5s", Items: []*pb.QueueProduceItem{{Utf8: "x"}}}), "no such queue named 'nope'")
	refused("in use", client.QueuesDelete(ctx, &pb.QueuesDeleteRequest{QueueName: "orders-dead"}), "'orders'")
	refused("chain", client.QueuesUpdate(ctx, &pb.QueueInfo{QueueName: "orders-dead", DeadQueue: "orders"}),
		"cannot have its own dead_queue")
}

func produce(ctx context.Context, client *querator.Client, item *pb.QueueProduceItem) {
	must("produce", client.QueueProduce(ctx, &pb.QueueProduceRequest{
		QueueName: "orders", RequestTimeout: "5s", Items: []*pb.QueueProduceItem{item}}))
}

func lease(ctx context.Context, client *querator.Client, queue string) *pb.QueueLeaseResponse {
	var leased pb.QueueLeaseResponse
	must("lease", client.QueueLease(ctx, &pb.QueueLeaseRequest{
		QueueName: queue, BatchSize: 10, ClientId: "go", RequestTimeout: "5s"}, &leased))
	same("leased items", len(leased.Items), 1)
	return &leased
}

func stored(ctx context.Context, client *querator.Client, queue string) []*pb.StorageItem {
	var list pb.StorageItemsListResponse
	must("items list", client.StorageItemsList(ctx, queue, 0, &list, &querator.ListOptions{Limit: 100}))
	return list.Items
}

func names(queues []*pb.QueueInfo) string {
	var all []string
	for _, queue := range queues {
		all = append(all, queue.QueueName)
	}
	return strings.Join(all, " ")
}

func must(step string, err error) {
	if err != nil {
		fmt.Printf("FAILED %s: %v\n", step, err)
		os.Exit(1)
	}
	fmt.Println("ok", step)
}

func same[T comparable](step string, got, want T) {
	if got != want {
		must(step, fmt.Errorf("got %v, not %v", got, want))
	}
}

func refused(step string, err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		must(step, fmt.Errorf("got %v, not an error with %q", err, words))
	}
	fmt.Println("ok", step, "is refused")
}
