// How fast whole cycles (produce, lease, complete) go with the released Go client on one connection.
//
// Usage: load ENDPOINT SECONDS BATCH...
// Prints a line of JSON for each batch size: items a second for each of the three verbs, and for whole cycles.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/kapetan-io/querator"
	pb "github.com/kapetan-io/querator/proto"
)

const queue = "load"

func main() {
	transport := &http.Transport{MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1}
	client, err := querator.NewClient(querator.ClientConfig{Endpoint: os.Args[1], Client: &http.Client{Transport: transport}})
	must(err)
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	must(err)
	ctx := context.Background()
	must(client.QueuesCreate(ctx, &pb.QueueInfo{
		QueueName: queue, LeaseTimeout: "1m", ExpireTimeout: "24h", RequestedPartitions: 1}))
	for _, argument := range os.Args[3:] {
		batch, err := strconv.Atoi(argument)
		must(err)
		cycles(ctx, client, batch, 0.2)
		told, err := json.Marshal(cycles(ctx, client, batch, seconds))
		must(err)
		fmt.Println(string(told))
	}
}

// Cycles for some seconds; what each verb took is added up.
func cycles(ctx context.Context, client *querator.Client, batch int, seconds float64) map[string]float64 {
	payload := make([]byte, 100)
	items := make([]*pb.QueueProduceItem, batch)
	for number := range items {
		items[number] = &pb.QueueProduceItem{Reference: "load", Bytes: payload}
	}
	var producing, leasing, completing time.Duration
	count := 0
	begin := time.Now()
	for time.Since(begin).Seconds() < seconds {
		start := time.Now()
		must(client.QueueProduce(ctx, &pb.QueueProduceRequest{QueueName: queue, RequestTimeout: "1m", Items: items}))
		produced := time.Now()
		var leased pb.QueueLeaseResponse
		must(client.QueueLease(ctx, &pb.QueueLeaseRequest{
			QueueName: queue, BatchSize: int32(batch), ClientId: "load", RequestTimeout: "1m"}, &leased))
		taken := time.Now()
		if len(leased.Items) != batch {
			must(fmt.Errorf("leased %d of %d", len(leased.Items), batch))
		}
		must(client.QueueComplete(ctx, &pb.QueueCompleteRequest{
			QueueName: queue, Partition: leased.Partition, RequestTimeout: "1m", Ids: querator.CollectIDs(leased.Items)}))
		producing += produced.Sub(start)
		leasing += taken.Sub(produced)
		completing += time.Since(taken)
		count += batch
	}
	rate := func(took time.Duration) float64 { return float64(count) / took.Seconds() }
	return map[string]float64{"batch": float64(batch), "produce": rate(producing), "lease": rate(leasing),
		"complete": rate(completing), "cycle": rate(producing + leasing + completing)}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
