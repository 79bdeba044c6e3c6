import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.transport.Netty4Plugin;

/** One OpenSearch node: folder, address, HTTP port, transport port. Only a subclass may say which modules it has. */
public class OpenSearchNode extends Node {
    private OpenSearchNode(Environment environment) {
        super(environment, List.of(Netty4Plugin.class, ReindexPlugin.class, PainlessPlugin.class, CommonAnalysisPlugin.class), false);
    }

    public static void main(String[] words) throws Exception {
        LogConfigurator.configureWithoutConfig(Settings.builder().put("logger.level", "WARN").build());
        Settings settings = Settings.builder()
            .put("path.home", words[0])
            .put("path.data", words[0] + "/data")
            .put("network.host", words[1])
            .put("http.port", words[2])
            .put("transport.port", words[3])
            .put("transport.type", "netty4")
            .put("http.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Node node = new OpenSearchNode(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"));
        CountDownLatch asked = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node, asked)));
        node.start();
        asked.await();
    }

    private static void close(Node node, CountDownLatch asked) {
        try {
            node.close();
        } catch (IOException error) {
            error.printStackTrace();
        } finally {
            asked.countDown();
        }
    }
}
