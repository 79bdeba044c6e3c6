import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.bson.Document;
import de.bwaldvogel.mongo.wire.message.MongoMessage;
import java.net.InetSocketAddress;
import java.util.List;

/** Speaks MongoDB's wire protocol: file, address, port. What was acknowledged is in the file, and outlives a kill. */
public class MongoWire extends H2Backend {
    /** The oldest release that today's drivers talk to. */
    private static final MongoVersion VERSION = new MongoVersion() {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0);
        }

        @Override
        public int getWireVersion() {
            return 9;
        }
    };

    private MongoWire(String file) {
        super(file);
    }

    @Override
    public Document handleMessage(MongoMessage message) {
        Document answer = super.handleMessage(message);
        commit();
        return answer;
    }

    public static void main(String[] words) {
        MongoServer server = new MongoServer(new MongoWire(words[0]).version(VERSION));
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdownNow));
        server.bind(new InetSocketAddress(words[1], Integer.parseInt(words[2])));
    }
}
